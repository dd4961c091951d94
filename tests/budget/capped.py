# SPDX-License-Identifier: MIT
"""What a program gets of a device of which it has a part, held against its own arithmetic: capped.py MIB. With "child", takes
a gigabyte and stays until it is killed.

What the driver takes beside is known to memtally a moment later: the program asks again until it is as it must be."""

import ctypes
import os
import signal
import subprocess
import sys
import time

MIB = 1 << 20
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
cuda = ctypes.CDLL("libcuda.so.1")


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of device 0."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("place", ctypes.c_int),
        ("device", ctypes.c_int),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    ]


def begin():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0


def free():
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    assert total.value == 24 << 30, "the device is as large as it is"
    return left.value // MIB


def take(mib):
    address = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib * MIB)), address


def give_back(address):
    assert cuda.cuMemFree_v2(address) == 0


def until(is_so):
    while not is_so():
        time.sleep(0.01)


def check_addresses(most):
    result, block = take(1000)
    assert result == 0
    until(lambda: free() == most - 1000)
    give_back(block)
    until(lambda: free() == most)
    assert take(most + 2)[0] == OUT_OF_MEMORY
    result, block = take(most)
    assert result == 0
    assert take(2)[0] == OUT_OF_MEMORY
    give_back(block)


def check_arrays_and_pools(most):
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    size = ctypes.c_size_t
    assert cuda.cuMemAllocPitch_v2(ctypes.byref(address), ctypes.byref(pitch), size(1 << 20), size(600), 4) == 0
    until(lambda: free() <= most - 600)
    give_back(address)
    until(lambda: free() == most)
    too_much = size((most + 2) * MIB)
    assert cuda.cuMemAllocPitch_v2(ctypes.byref(address), ctypes.byref(pitch), too_much, size(1), 4) == OUT_OF_MEMORY
    assert cuda.cuMemAllocAsync(ctypes.byref(address), too_much, None) == OUT_OF_MEMORY
    assert cuda.cuMemAllocManaged(ctypes.byref(address), too_much, 1) == OUT_OF_MEMORY


def check_physical(most):
    """Memory stays with its last handle and mapping."""
    handle, address = ctypes.c_uint64(), ctypes.c_uint64()
    size = ctypes.c_size_t(512 * MIB)
    where = Properties(type=1, place=1, device=0)
    none = ctypes.c_uint64(0)
    assert cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t((most + 2) * MIB), ctypes.byref(where), none) == OUT_OF_MEMORY
    assert cuda.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(where), none) == 0
    assert cuda.cuMemAddressReserve(ctypes.byref(address), size, ctypes.c_size_t(0), none, none) == 0
    assert cuda.cuMemMap(address, size, ctypes.c_size_t(0), handle, none) == 0
    assert cuda.cuMemRelease(handle) == 0
    until(lambda: free() == most - 512)
    assert take(most - 500)[0] == OUT_OF_MEMORY, "it is mapped"
    assert cuda.cuMemUnmap(address, size) == 0
    until(lambda: free() == most)


def check_refusals(most):
    """What the driver itself refuses, of what the part has room for, takes nothing of the part."""
    handle, address = ctypes.c_uint64(), ctypes.c_uint64()
    where, none, odd = Properties(type=1, place=1, device=0), ctypes.c_uint64(0), ctypes.c_size_t(1000 * MIB + 1)
    for _ in range(20):
        assert cuda.cuMemCreate(ctypes.byref(handle), odd, ctypes.byref(where), none) == INVALID_VALUE
        assert cuda.cuMemAllocManaged(ctypes.byref(address), odd, 77) == INVALID_VALUE
    assert free() == most


def load_pool():
    pool = ctypes.CDLL(os.environ["POOL_LIBRARY"])
    pool.memtally_pool_try_malloc.restype = ctypes.c_void_p
    pool.memtally_pool_try_malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    pool.memtally_pool_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return pool


def fill(pool, mib):
    """As many blocks as there is room for, which go back. How many there were."""
    blocks = []
    while block := pool.memtally_pool_try_malloc(mib * MIB, 0, None):
        blocks.append(block)
    for block in blocks:
        pool.memtally_pool_free(block, 0, 0, None)
    pool.memtally_pool_empty_cache()
    return len(blocks)


def check_pool(most):
    """A pool of the driver's virtual memory gets what the part has, and what it asked for in vain takes nothing of the part."""
    pool = load_pool()
    fill(pool, 256)
    until(lambda: free() < most)  # the device's primary context, which the pool uses
    most = free()
    for _ in range(3):
        until(lambda: fill(pool, 256) == most // 256)
        until(lambda: free() == most)


def check_others(most):
    """All processes have one part together, and one that is killed has none."""
    words = [sys.executable, __file__, "child"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "0\n"
        assert take(most - 1000 + 2)[0] == OUT_OF_MEMORY
        child.send_signal(signal.SIGKILL)
        child.wait()
    until(lambda: take(most)[0] == 0)


def main():
    begin()
    if sys.argv[1] == "child":
        print(take(1000)[0], flush=True)
        signal.pause()
    part = int(sys.argv[1])
    until(lambda: free() < part)  # the context
    most = free()
    check_addresses(most)
    check_arrays_and_pools(most)
    check_physical(most)
    check_refusals(most)
    check_pool(most)
    check_others(free())
    print("as it must be")
    sys.stdout.flush()
    os._exit(0)


main()
