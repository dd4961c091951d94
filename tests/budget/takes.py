# SPDX-License-Identifier: MIT
"""Takes MIB... of the first CUDA device, one after the other, prints what the driver says of each, and
stays until its standard input ends where the first argument is "stay"."""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
device, context, count, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print("devices", count.value)
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
for mib in sys.argv[1:]:
    print(mib, cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(mib) << 20)))
