# SPDX-License-Identifier: MIT
"""What PyTorch, where there is one, makes of a device: its allocator's own figures and words."""

import re

from sections import section

MIB = 1 << 20


def torch_on_a_card():
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def with_torch(function):
    def ask():
        torch = torch_on_a_card()
        return function(torch) if torch else {"skipped": "no PyTorch with CUDA"}

    ask.__name__ = function.__name__
    return ask


@section()
@with_torch
def torch_properties(torch):
    properties = torch.cuda.get_device_properties(0)
    names = ["name", "major", "minor", "total_memory", "multi_processor_count", "warp_size", "regs_per_multiprocessor"]
    names += ["max_threads_per_multi_processor", "shared_memory_per_block", "shared_memory_per_block_optin", "L2_cache_size"]
    return {name: getattr(properties, name, None) for name in names}


@section()
@with_torch
def torch_allocations(torch):
    answers = {}
    for size in (1, 512, 513, MIB, MIB + 1, 10 * MIB, 10 * MIB + 1, 100 * MIB):
        torch.cuda.empty_cache()
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        answers[str(size)] = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
        del block
    return answers


@section()
@with_torch
def torch_workspaces(torch):
    """cuBLAS's, which PyTorch takes from its own allocator and by the card's capability."""
    a = torch.zeros(64, 64, device="cuda")
    before = torch.cuda.memory_allocated()
    b = a @ a
    return {"taken": torch.cuda.memory_allocated() - before - b.untyped_storage().nbytes()}


@section()
@with_torch
def torch_out_of_memory(torch):
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error).split(". If reserved")[0]
        return {"text": re.sub(r"Process \d+ has|[\d.]+ [GM]iB (is free|memory in use)", "…", text)}
    return {"text": "none"}


@section()
@with_torch
def torch_graph(torch):
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
    torch.cuda.synchronize()
    return {"reserved": torch.cuda.memory_reserved() - before, "allocated": y.untyped_storage().nbytes()}


@section()
@with_torch
def torch_expandable_segments(torch):
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    blocks = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (1, 3, 30, 30)]
    answers = {"reserved": torch.cuda.memory_reserved()}
    answers["segments"] = sorted(segment["total_size"] for segment in torch.cuda.memory_snapshot())
    del blocks[2]
    torch.cuda.empty_cache()
    answers["after"] = torch.cuda.memory_reserved()
    return answers
