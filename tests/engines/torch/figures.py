# SPDX-License-Identifier: MIT
"""What the programs under test here share: asking PyTorch's allocator, and writing down what it said."""

import gc
import json
import sys

import torch

MIB = 1 << 20


def settle():
    """Gives back to the driver all that PyTorch keeps without using it."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def used(device=0):
    """What the driver says is not free."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free


most = 0  # bytes that were reserved at most, of what has been measured


def most_reserved(device=0):
    """Over the whole program, though each measurement counts anew."""
    global most
    most = max(most, torch.cuda.max_memory_reserved(device))
    return most


def measure(run, device=0):
    """Calls `run`: bytes that its result holds, the highest beside it, and what is reserved. Returns the result too."""
    settle()
    most_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    before_reserved = torch.cuda.memory_reserved(device)
    before_used = used(device)
    result = run()
    torch.cuda.synchronize()
    said = {
        "kept": torch.cuda.memory_allocated(device) - before,
        "peak": torch.cuda.max_memory_allocated(device) - before,
        "reserved": torch.cuda.memory_reserved(device) - before_reserved,
        "driver": used(device) - before_used,
    }
    return said, result


def requested(device=0):
    """Bytes that were asked for and not freed, without any rounding."""
    return torch.cuda.memory_stats(device)["requested_bytes.all.current"]


def write(figures):
    """Writes the figures into the file that the last argument names."""
    with open(sys.argv[-1], "w", encoding="utf-8") as file:
        json.dump(figures, file)
