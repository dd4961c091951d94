# SPDX-License-Identifier: MIT
"""Captures 67 graphs again and again, in turn with and without memtally's look at each one, and writes down the seconds of processor time of each round.
A graph is of 24 layers of 12 kernels; tensors of all sizes lie in one pool, the largest first. usage: graphs_captured.py FILE ROUNDS"""

import gc
import json
import sys
import time

import torch
from torch.utils._python_dispatch import _disable_current_modes

GRAPHS, LAYERS, KERNELS = 67, 24, 12


def forward(state):
    for _ in range(LAYERS):
        hidden = state * 2
        for _ in range(KERNELS - 2):
            hidden = hidden + state
        state = hidden - state
    return state


def capture_all():
    pool = torch.cuda.graph_pool_handle()
    states = [torch.zeros(8 * (GRAPHS - i), 64, device="cuda") for i in range(GRAPHS)]
    forward(states[0])
    torch.cuda.synchronize()
    graphs = []
    begun = time.process_time()
    for state in states:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            forward(state)
        graphs.append(graph)
    return time.process_time() - begun


def switch():
    """What turns memtally's look at captures on and off: its own calls, behind functions that stay."""
    (watch,) = [module for name, module in sys.modules.items() if name.endswith("watch.graphs")]
    quietly = watch.Graphs._quietly

    def turn(is_on):
        watch.Graphs._quietly = quietly if is_on else lambda self, call, *args: None

    return turn


def main():
    torch.zeros(1, device="cuda")
    turn = switch()
    rounds = {"with": [], "without": []}
    with _disable_current_modes():  # a rehearsal's own look at each operation would hide what is measured
        capture_all()
        for i in range(2 * int(sys.argv[2])):
            is_on = i % 4 in (0, 3)
            turn(is_on)
            gc.collect()
            rounds["with" if is_on else "without"].append(capture_all())
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(rounds, file)


main()
