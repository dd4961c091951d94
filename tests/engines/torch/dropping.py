# SPDX-License-Identifier: MIT
"""Captures three graphs, of which two share a pool, and drops one after the other: what the device holds each time. The engine's
list has a size more than it captures."""

import gc
import sys
import types

import torch

import figures

NAME = "sglang.srt.model_executor.cuda_graph_runner"
ENGINE = """
def capture_one_batch_size(self, bs, capture):
    num_tokens = bs * self.num_tokens_per_bs
    return capture(num_tokens)
"""


def capture_with(pool):
    def capture(tokens):
        state = torch.zeros(tokens, 64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            state.add_(1)
            torch.empty(tokens << 20, dtype=torch.uint8, device="cuda")
        return graph

    return capture


def held():
    """What the device has in use beside nothing at all, once PyTorch gave back what it can."""
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


def main():
    engine = types.ModuleType(NAME)
    exec(ENGINE, engine.__dict__)  # pylint: disable=exec-used
    sys.modules[NAME] = engine
    runner = types.SimpleNamespace(num_tokens_per_bs=1, capture_bs=[64, 40, 24, 8])
    pool = torch.cuda.graph_pool_handle()
    capture_with(None)(1)  # the generator's seed, which lies beside all pools, and code that is used first
    graphs = {}
    graphs["alone"] = engine.capture_one_batch_size(runner, 64, capture_with(None))
    graphs["shared"] = engine.capture_one_batch_size(runner, 40, capture_with(pool))
    graphs["sharing"] = engine.capture_one_batch_size(runner, 24, capture_with(pool))
    dropped = {}
    for name in ("alone", "sharing"):
        before = held()
        del graphs[name]
        dropped[name] = before - held()
    return {"dropped": dropped}


figures.write(main())
