# SPDX-License-Identifier: MIT
"""Trains a little with PyTorch's history of its allocator switched on before the device is used, and dumps a snapshot."""

import json
import sys

import torch


def main(path):
    torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python")
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(512, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    kept = [torch.empty(3_000_001, device="cuda") for _ in range(3)]
    del kept[1]
    torch.cuda.memory._dump_snapshot(path + ".pickle")
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    states = [value for state in optimizer.state.values() for value in state.values() if value.is_cuda]
    figures = {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "most": torch.cuda.max_memory_allocated(),
        "weights": sum(p.untyped_storage().nbytes() for p in model.parameters()),
        "optimizer": sum(s.untyped_storage().nbytes() for s in states),
        "with frames": sum(bool(entry.get("frames")) for entry in history if entry["action"] == "alloc"),
        "allocations": sum(entry["action"] == "alloc" for entry in history),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(figures, file)


if __name__ == "__main__":
    main(sys.argv[1])
