# SPDX-License-Identifier: MIT
"""Updates instantiated graphs, of which one has another shape, by a function that has the names and locals of SGLang's; and captures
one more graph once it has replayed another twice."""

import ctypes
import os
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "updates"))

import torch  # noqa: E402
from cuda.bindings import driver  # noqa: E402

import figures  # noqa: E402

NAME = "sglang.srt.model_executor.cuda_graph_runner"
ENGINE = """
def capture_one_batch_size(self, bs, capture):
    num_tokens = bs * self.num_tokens_per_bs
    return capture(num_tokens)
"""
library = ctypes.CDLL("libcuda.so.1")


def graph_of(nodes):
    graph, node = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuGraphCreate(ctypes.byref(graph), 0) == 0
    for _ in range(nodes):
        assert library.cuGraphAddEmptyNode(ctypes.byref(node), graph, None, ctypes.c_size_t(0)) == 0
    return graph


def update_with(nodes):
    made = ctypes.c_void_p()
    assert library.cuGraphInstantiateWithFlags(ctypes.byref(made), graph_of(3), ctypes.c_ulonglong(0)) == 0
    error, info = driver.cuGraphExecUpdate(made.value, graph_of(nodes).value)
    return int(error), info.result.name


def capture(tokens):
    state = torch.zeros(tokens, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state.add_(1)
        torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
    return graph, state


def main():
    engine = types.ModuleType(NAME)
    exec(ENGINE, engine.__dict__)  # pylint: disable=exec-used
    sys.modules[NAME] = engine
    runner = types.SimpleNamespace(num_tokens_per_bs=3)
    kept = [engine.capture_one_batch_size(runner, batch, capture) for batch in (16, 8)]
    updates = [engine.capture_one_batch_size(runner, batch, lambda tokens, n=nodes: update_with(n)) for batch, nodes in ((16, 3), (8, 4))]
    for graph, _ in kept:
        graph.replay()
    kept[0][0].replay()
    for batch in (4, 2):
        kept.append(engine.capture_one_batch_size(runner, batch, capture))
    return {"updates": updates, "kept": len(kept)}


figures.write(main())
