# SPDX-License-Identifier: MIT
"""Calls the two functions of docs/POOL.md as CuPy's PythonFunctionAllocator does, on a pretended device: as_cupy.py PAGE LIBRARY.
What stands for CuPy is made here, by its published interface. Prints "done" where all was as it must be."""

import ctypes
import re
import sys
import types

MIB = 1 << 20
page, library = sys.argv[1:]


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory's: the size that was asked for and what is held."""

    def __init__(self, size, total):
        super().__init__(f"out of memory: {size} of {total}")


class PythonFunctionAllocator:
    """Asks by a size and a device's number, and gives back by an address and a device's number."""

    def __init__(self, malloc_function, free_function):
        self.malloc_function, self.free_function = malloc_function, free_function

    def malloc(self, size):
        address = self.malloc_function(size, 0)
        assert isinstance(address, int)
        return address, lambda: self.free_function(address, 0)


current = types.SimpleNamespace(ptr=0)
chosen = []
cupy = types.SimpleNamespace()
cupy.cuda = types.SimpleNamespace(
    PythonFunctionAllocator=PythonFunctionAllocator,
    get_current_stream=lambda: current,
    memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    set_allocator=chosen.append,
)

with open(page, encoding="utf-8") as file:
    (recipe,) = [block for block in re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL) if "PythonFunctionAllocator" in block]

driver = ctypes.CDLL("libcuda.so.1")
device, context, left, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and driver.cuCtxSetCurrent(context) == 0


def free_bytes():
    assert driver.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    return left.value


exec(recipe)  # pylint: disable=exec-used
(malloc,) = chosen
before = free_bytes()
blocks = [malloc(10 * MIB), malloc(3 * MIB)]
assert len({address for address, _ in blocks}) == 2 and all(address for address, _ in blocks)
assert 13 * MIB <= before - free_bytes() <= 64 * MIB
assert malloc(0)[0] == 0
for _, give_back in blocks:
    give_back()
held = free_bytes()
again, give_back = malloc(10 * MIB)
assert again in [address for address, _ in blocks], "what was given back is had again"
assert free_bytes() == held, "without the driver"
give_back()
current.ptr = 2  # CU_STREAM_PER_THREAD
_, give_back = malloc(10 * MIB)
give_back()
try:
    malloc(total.value)
    print("more than the device has was given")
except OutOfMemoryError:
    print("done")
