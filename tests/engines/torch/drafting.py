# SPDX-License-Identifier: MIT
"""Captures decoding of up to eight requests with drafts of four tokens, and without drafts where --max_concurrency is given:
by a function that has the names and locals of TensorRT-LLM's, the largest first, into one pool."""

import argparse
import sys
import types

import torch

NAME = "tensorrt_llm._torch.pyexecutor.model_engine"
ENGINE = """
def _capture_generation_cuda_graphs(batches, draft_lengths, capture):
    graphs = []
    for bs in batches:
        for draft_len in draft_lengths:
            graphs.append(capture(bs * (1 + draft_len)))
    return graphs
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_concurrency", type=int)
    concurrency = parser.parse_args().max_concurrency
    engine = types.ModuleType(NAME)
    exec(ENGINE, engine.__dict__)  # pylint: disable=exec-used
    sys.modules[NAME] = engine
    pool = torch.cuda.graph_pool_handle()

    def capture(tokens):
        state = torch.zeros(tokens, 64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            state.add_(1)
            torch.empty(tokens << 20, dtype=torch.uint8, device="cuda")
        return graph

    drafts = [4] if concurrency is None else [4, 0]
    engine._capture_generation_cuda_graphs(range(8, 0, -1), drafts, capture)


main()
