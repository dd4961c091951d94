# SPDX-License-Identifier: MIT
"""What a program may do that whoever looks on does not expect: a module that cannot be hashed, a child that is forked
after the model was called, and a PyTorch that no longer says how many devices there are.

Arguments: where to write, the device."""

import dataclasses
import json
import multiprocessing
import os
import sys

import torch


@dataclasses.dataclass
class Scaled(torch.nn.Module):
    """A dataclass has no hash."""

    width: int

    def __post_init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(self.width))

    def forward(self, hidden):
        return hidden * self.scale


def refuse():
    raise RuntimeError("not now")


def main(path, device):
    said = {"pid": os.getpid()}
    said["unhashable"] = list(Scaled(8)(torch.ones(2, 8)).shape)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).to(device)
    model(torch.ones(2, 8, device=device))
    child = multiprocessing.get_context("fork").Process(target=len, args=("",))
    child.start()
    child.join()
    said["child"] = child.exitcode
    torch._C._cuda_getDeviceCount = refuse
    said["after"] = list(torch.add(torch.ones(3), 1).shape)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file)


main(*sys.argv[1:])
