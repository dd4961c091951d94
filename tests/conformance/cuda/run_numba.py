# SPDX-License-Identifier: MIT
"""Takes memory of a device by numba: arrays, pinned memory, and a kernel that is launched where the compiler is there."""

import numpy
from numba import cuda

sizes = [1 << 20, 10 << 20, 64 << 20, 3 << 20]
arrays = [cuda.device_array(size, dtype=numpy.float32) for size in sizes]
copied = cuda.to_device(numpy.zeros(5 << 20, dtype=numpy.uint8))
pinned = cuda.pinned_array(1 << 20, dtype=numpy.uint8)
del arrays[1]
cuda.current_context().deallocations.clear()
arrays.append(cuda.device_array(7 << 20, dtype=numpy.float64))
free, total = cuda.current_context().get_memory_info()
assert total - free > sum(array.nbytes for array in arrays) + copied.nbytes
print("arrays", sum(array.nbytes for array in arrays) + copied.nbytes)
try:
    @cuda.jit
    def add(x):
        x[cuda.grid(1)] += 1

    add[64, 256](arrays[0])
    cuda.synchronize()
    print("a kernel was launched")
except Exception as error:
    print("no kernel:", type(error).__name__, str(error)[:200])
