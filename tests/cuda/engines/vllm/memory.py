# SPDX-License-Identifier: MIT
"""Memory of devices: by PyTorch where there is one, else by the driver."""

import ctypes

try:
    import torch
except ImportError:
    torch = None
    DRIVER = ctypes.CDLL("libcuda.so.1")


class OutOfMemory(RuntimeError):
    pass


def _select(device):
    context = ctypes.c_void_p()
    assert DRIVER.cuInit(0) == 0
    if DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        raise OutOfMemory("CUDA out of memory.")
    assert DRIVER.cuCtxSetCurrent(context) == 0


def take(size, device=0):
    """A block; it is there until it is given back."""
    if torch:
        return torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
    pointer = ctypes.c_uint64()
    _select(device)
    if DRIVER.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)):
        raise OutOfMemory("CUDA out of memory.")
    return pointer


def give_back(blocks):
    if torch:
        blocks.clear()
        torch.cuda.empty_cache()
    for block in blocks:
        assert DRIVER.cuMemFree_v2(block) == 0
    blocks.clear()


def info(device=0):
    """What is free, and all."""
    if torch:
        return torch.cuda.mem_get_info(device)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _select(device)
    assert DRIVER.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value, total.value
