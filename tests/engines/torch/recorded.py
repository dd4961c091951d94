# SPDX-License-Identifier: MIT
"""What two observers are to agree about: recorded.py WAY FIGURES. Sums over storages are the program's own."""

import os
import sys

import torch
from torch.utils.checkpoint import checkpoint

import figures

WIDTH, LAYERS, ROWS = 1024, 6, 64


def bytes_of(tensors):
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


def make():
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(LAYERS)))


def infer(model):
    with torch.no_grad():
        for _ in range(3):
            model(torch.zeros(ROWS, WIDTH, device="cuda"))
    return {}


def train(model, forward=None):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        (forward or model)(torch.zeros(ROWS, WIDTH, device="cuda")).sum().backward()
        optimizer.step()
    state = bytes_of(value for one in optimizer.state.values() for value in one.values() if value.is_cuda)
    return {"gradients": bytes_of(one.grad for one in model.parameters()), "state": state}


def recompute(model):
    def forward(x):
        x.requires_grad_()
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=False)
        return x
    return train(model, forward)


def capture(model):
    x = torch.zeros(ROWS, WIDTH, device="cuda")
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
        graph.replay()
    torch.cuda.synchronize()
    return {}


def run_out(model):
    try:
        return {"held": [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(1000)]}
    except torch.OutOfMemoryError:
        return {"layers": len(model)}


def rank(model):
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel
    distributed.init_process_group("nccl")
    said = train(DistributedDataParallel(model))
    distributed.destroy_process_group()
    return said


def main():
    way, number = sys.argv[1], int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(number)
    model = make()
    said = {"infer": infer, "train": train, "recompute": recompute, "capture": capture, "run_out": run_out, "rank": rank}[way](model)
    said |= {"weights": bytes_of(model.parameters()), "reserved": torch.cuda.max_memory_reserved()}
    if "LOCAL_RANK" in os.environ:
        sys.argv[-1] += f".{number}"
    figures.write(said)


if __name__ == "__main__":
    main()
