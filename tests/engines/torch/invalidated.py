# SPDX-License-Identifier: MIT
"""Captures that are invalidated, one whose error the program passes over, and a batch that is captured twice, by a function that
has the names and locals of SGLang's. With `none`, only the captures that fail."""

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


def capture(tokens):
    state = torch.zeros(tokens, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state.add_(1)
    return graph, state


def wait_within(tokens, passes_over=False):
    state = torch.zeros(tokens, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        state.add_(1)
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            if not passes_over:
                raise


def main():
    engine = types.ModuleType(NAME)
    exec(ENGINE, engine.__dict__)  # pylint: disable=exec-used
    sys.modules[NAME] = engine
    runner = types.SimpleNamespace(num_tokens_per_bs=5)
    kept, failed = [], 0
    for batch, call in ((8, wait_within), (4, lambda tokens: wait_within(tokens, True))):
        try:
            engine.capture_one_batch_size(runner, batch, call)
        except RuntimeError:
            failed += 1
    if "none" not in sys.argv:
        kept = [engine.capture_one_batch_size(runner, 2, capture) for _ in range(2)]
    return {"failed": failed, "kept": len(kept)}


figures.write(main())
