# SPDX-License-Identifier: MIT
"""Rehearses tests/engines/torch/pooled.py with an allocator: what it said, and what the pretended driver saw."""

import json
import os
import tempfile

import account
import engine
import memtally

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "engines", "torch", "pooled.py")
# By name: the program's word for it, and what PyTorch's own allocator is told.
ALLOCATORS = {
    "PyTorch": ("native", ""),
    "expandable": ("native", "expandable_segments:True"),
    "pool": ("pool", ""),
    "segments": ("segments", ""),
}


def library():
    return os.path.join(os.environ["BUILD_DIR"], "src", "pool", "plugin", "libmemtally-pool.so")


def calls_of(path):
    """How often the driver of the device gave memory, took it back, and refused; the most that it gave at a time."""
    head, events = account.read(path)
    kinds = [account.KINDS[event.kind] for event in events if account.place(event) == "gpu:0"]
    return {**{kind: kinds.count(kind) for kind in ("alloc", "free", "refuse")}, "peak": head.device[0].peak_bytes}


def rehearse(name, work, device):
    """What the program wrote down, or None where it did not end well; the driver's calls beside it."""
    allocator, told = ALLOCATORS[name]
    environment = {key: value for key, value in os.environ.items() if key != "PYTORCH_CUDA_ALLOC_CONF"}
    environment.update({"PYTORCH_CUDA_ALLOC_CONF": told} if told else {})
    with tempfile.TemporaryDirectory() as folder:
        path, run = os.path.join(folder, "figures.json"), os.path.join(folder, "run")
        done = memtally.run("rehearse", "--device", device, "--requests", "0", "--no-suggest", "--folder", run, "--json", "--",
                            engine.torch(), PROGRAM, allocator, work, library(), path, env=environment)
        assert done.returncode in (0, 1) and done.stdout, (done.returncode, done.stderr[-3000:])
        said = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
        return said, {**calls_of(os.path.join(run, "account")), "document": json.loads(done.stdout)}
