# SPDX-License-Identifier: MIT
"""Takes 24 pieces of 32 MiB of the first CUDA device and stays: eats_device.py KIND FILE. It writes down each piece once it has it.
"gives" gives all back on SIGUSR1 and ends well, "ends" does so on SIGTERM with status 7, "deaf" hears neither."""

import ctypes
import os
import signal
import sys

kind, path = sys.argv[1:]
cuda = ctypes.CDLL("libcuda.so.1")
device, context, taken = ctypes.c_int(), ctypes.c_void_p(), []
promised = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def promise(letter):
    os.write(promised, f"{letter}{len(taken)}\n".encode())


def leave(letter, status):
    promise(letter)
    while taken:
        if cuda.cuMemFree_v2(taken.pop()) != 0:
            os._exit(9)
    os._exit(status)


for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
if kind == "gives":
    signal.signal(signal.SIGUSR1, lambda *_: leave("g", 0))
if kind == "ends":
    signal.signal(signal.SIGTERM, lambda *_: leave("e", 7))
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
for _ in range(24):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(32 << 20)) == 0
    taken.append(address)
    promise("t")
while True:
    signal.pause()
