# SPDX-License-Identifier: MIT
"""CUDA graphs of several batches and draft lengths, captured by functions that have the names and locals of engines'."""

import sys
import types

import torch

import figures

CUDA = {"device": "cuda"}
ENGINES = """
def capture_one_batch_size(self, bs, capture):
    num_tokens = bs * self.num_tokens_per_bs
    return capture(num_tokens)
"""


def engine_module(name):
    module = types.ModuleType(name)
    exec(ENGINES, module.__dict__)  # pylint: disable=exec-used
    sys.modules[name] = module
    return module


def capture(tokens, pool=None, kernels=3):
    state = torch.zeros(tokens, 1024, **CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        for _ in range(kernels):
            state.add_(1)
        kept = torch.empty(tokens << 20, dtype=torch.uint8, **CUDA)
    return graph, state, kept


def main():
    named = engine_module("sglang.srt.model_executor.cuda_graph_runner")
    capture(1)  # is gone at once
    runner = types.SimpleNamespace(num_tokens_per_bs=5)
    kept = [named.capture_one_batch_size(runner, 8, capture)]
    runner.num_tokens_per_bs = 1
    kept.append(named.capture_one_batch_size(runner, 8, lambda tokens: capture(tokens, kernels=7)))
    failed = ""
    try:
        runner.num_tokens_per_bs = 3
        named.capture_one_batch_size(runner, 1 << 20, capture_too_much)
    except torch.OutOfMemoryError:
        failed = "out of memory"
    kept.append(capture(2))
    return {"kept": len(kept), "failed": failed, "reserved": torch.cuda.memory_reserved()}


def capture_too_much(_):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.empty(1 << 40, dtype=torch.uint8, **CUDA)


figures.write(main())
