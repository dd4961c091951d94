# SPDX-License-Identifier: MIT
"""Captures three graphs. The second has a buffer of its own outside the pool; cuBLAS works for the first time in the capture of the
third, in which somebody takes memory of the driver, too. Writes down what each of these was by the program's own count."""

import ctypes

import torch

import figures

MIB = 1 << 20
CUDA = {"device": "cuda", "dtype": torch.uint8}
library = ctypes.CDLL("libcuda.so.1")


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


def take(size):
    address = ctypes.c_uint64()
    assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address.value


def capture(pool, work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="relaxed"):
        work()
    return graph


def main():
    pool = torch.cuda.graph_pool_handle()
    weights = torch.nn.Linear(256, 256, device="cuda")
    kept = [weights, torch.zeros(1, device="cuda").add_(1)]
    torch.empty(64 * MIB, **CUDA)  # is free again, and PyTorch keeps it
    graphs = [capture(pool, lambda: kept.append(torch.empty(40 * MIB, **CUDA)))]
    kept.append(torch.empty(24 * MIB, **CUDA))  # the second's
    graphs.append(capture(pool, lambda: kept.append(torch.empty(30 * MIB, **CUDA))))
    state = torch.zeros(256, 256, device="cuda")

    def work():
        take(6 * MIB)
        weights(state)

    graphs.append(capture(pool, work))
    return {"used": used(), "reserved": torch.cuda.memory_reserved(), "graphs": len(graphs), "state": state.nbytes}


figures.write(main())
