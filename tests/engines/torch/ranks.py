# SPDX-License-Identifier: MIT
"""One of the processes that torchrun starts, each with a device of its own. The second ends with status 3."""

import os
import sys

import torch
import torch.distributed as distributed

import figures


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl")
    held = torch.ones(64 * figures.MIB, dtype=torch.uint8, device="cuda")
    ranks = torch.tensor([rank + 1], device="cuda")
    distributed.all_reduce(ranks)
    said = {"sum": ranks.item(), "held": held.numel(), "reserved": torch.cuda.memory_reserved()}
    sys.argv[-1] += f".{rank}"
    figures.write(said)
    distributed.barrier()
    distributed.destroy_process_group()
    sys.exit(3 if rank == 1 else 0)


if __name__ == "__main__":
    main()
