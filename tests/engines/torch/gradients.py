# SPDX-License-Identifier: MIT
"""Data parallel training in one of the processes that torchrun starts: what is allocated after each step."""

import os
import sys

import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel

import figures

WIDTH = 2048
LAYERS = 4
STEPS = 3


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl")
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), device_ids=[rank])
    before = torch.cuda.memory_allocated()
    after = []
    for _ in range(STEPS):
        model(torch.zeros(1, WIDTH, device="cuda")).sum().backward()
        model.zero_grad()
        after.append(torch.cuda.memory_allocated())
    sys.argv[-1] += f".{rank}"
    figures.write({"before": before, "after": after})
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
