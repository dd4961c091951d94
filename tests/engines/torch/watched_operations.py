# SPDX-License-Identifier: MIT
"""Operators of several shapes, under torch.profiler as well: what it counts for each.

Arguments: where to write, the device."""

import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile

WANTED = ("aten::mm", "aten::addmm", "aten::add", "aten::gelu", "aten::native_layer_norm", "aten::cat", "aten::clone")


def work(device):
    torch.manual_seed(0)
    kept = []
    for rows, columns in ((512, 1024), (256, 2048), (512, 1024)):
        one = torch.empty(rows, columns, device=device)
        other = torch.empty(columns, rows, device=device)
        bias = torch.empty(rows, device=device)
        kept += [torch.mm(one, other), torch.addmm(bias, one, other), one + one, torch.nn.functional.gelu(one)]
        kept += [torch.nn.functional.layer_norm(one, (columns,)), torch.cat([one, one]), one.clone()]
    return kept


def main(path, device):
    torch.mm(torch.empty(8, 8, device=device), torch.empty(8, 8, device=device))  # cuBLAS's workspace
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as seen:
        work(device)
    said = []
    for event in seen.key_averages(group_by_input_shape=True):
        if event.key in WANTED:
            said.append({"name": event.key, "shapes": event.input_shapes, "count": event.count,
                         "host": event.cpu_memory_usage, "device": event.device_memory_usage})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file)


main(*sys.argv[1:])
