# SPDX-License-Identifier: MIT
"""Eight layers of 2048 x 2048 floats, forwards and backwards once. cuBLAS takes a workspace for each product."""

import torch

import figures


def main():
    layers = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    layers(torch.randn(4, 2048, device="cuda")).sum().backward()
    figures.write({"version": torch.__version__, "allocated": torch.cuda.max_memory_allocated(),
                   "reserved": torch.cuda.max_memory_reserved()})


if __name__ == "__main__":
    main()
