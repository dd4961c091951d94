#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The recorder and a rehearsal's account over the same run of PyTorch, on pretended devices: two observers that know
nothing of each other say the same of every device, and the program's own sums stand in the rows."""

import functools
import json
import os
import tempfile

import engine
import memtally
import ports
import tap
import torch_program

MIB = 1 << 20


def command(way, path):
    program = os.path.join(torch_program.PROGRAMS, "recorded.py")
    if way != "rank":
        return [engine.torch(), program, way, path]
    port = str(ports.free_port())
    return [engine.torch(), "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port,
            program, way, path]


@functools.cache
def both(way, allocator="", device="H100-80GB"):
    """What the program said, the document of its rehearsal, and the report of its recording."""
    with tempfile.TemporaryDirectory() as folder:
        path, recording = os.path.join(folder, "figures"), os.path.join(folder, "recording")
        done = memtally.run("rehearse", "--layer", "cuda", "-d", device, "--requests", "0", "--no-suggest", "--json", "--",
                            memtally.program(), "run", "-q", "-o", recording, "--", *command(way, path),
                            env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=allocator))
        assert done.stdout, done.stderr[-3000:]
        said = []
        for name in (path, path + ".0", path + ".1"):
            if os.path.exists(name):
                with open(name, encoding="utf-8") as file:
                    said.append(json.load(file))
        assert said, done.stderr[-3000:]
        return said, json.loads(done.stdout), json.loads(memtally.must("report", "--json", recording).stdout)


def devices(document):
    return [place for place in document["places"] if place["place"].startswith("gpu:") and place["rows"]]


def rows(place, key):
    return {row["category"]: row[key] for row in place["rows"] if row[key]}


def of_pytorch(place, key):
    """What the recorder knows of by calls of its own and PyTorch's traces, and not by the driver's word."""
    taken = rows(place, key)
    rest = sum(taken.pop(category, 0) for category in ("activations", "cached", "graphs"))
    return {category: size for category, size in taken.items() if category != "context"} | {"rest": rest}


def agree(way, allocator="", device="H100-80GB"):
    said, rehearsed, recorded = both(way, allocator, device)
    one, other = devices(rehearsed), devices(recorded)
    assert len(one) == len(other) and one, (way, one, other)
    for here, there in zip(one, sorted(other, key=lambda place: place["uuid"])):
        assert here["total_allocated_bytes"] == there["total_resident_bytes"], (way, here, there)
        assert of_pytorch(there, "resident_bytes") == of_pytorch(here, "allocated_bytes"), (way, here, there)
        assert sum(rows(there, "resident_bytes").values()) + there["unattributed_bytes"] == there["total_resident_bytes"]
    return said, one, other


def weights_of(said, other):
    """All of it is in blocks of their own, whose sizes PyTorch rounds to 512 bytes; these are multiples."""
    for one, place in zip(said, other):
        assert rows(place, "resident_bytes")["weights"] == one["weights"] == 6 * 1024 * 1024 * 4, (one, place)


def test_inference():
    said, _, other = agree("infer")
    weights_of(said, other)
    # PyTorch gives cuBLAS 32 MiB on Hopper (CUDABlas's getChosenWorkspaceSize: 4096 KiB x 8), a block of its own.
    assert rows(other[0], "resident_bytes")["workspace"] == 32 * MIB, other


def test_training_with_adamw():
    said, _, other = agree("train")
    weights_of(said, other)
    # Gradients as large as the weights, and two moments for each; AdamW's step is a tensor of the host.
    assert said[0]["gradients"] == said[0]["weights"] and said[0]["state"] == 2 * said[0]["weights"], said
    assert rows(other[0], "resident_bytes")["training"] == said[0]["gradients"] + said[0]["state"], (said, other)


def test_checkpointing():
    said, _, other = agree("recompute")
    weights_of(said, other)


def test_cuda_graphs():
    agree("capture")


def test_segments_that_expand():
    said, _, other = agree("train", "expandable_segments:True")
    weights_of(said, other)


def test_the_drivers_own_allocator():
    agree("train", "backend:cudaMallocAsync")


def test_two_ranks():
    # Kernels are loaded when they are first started, which may be after the last allocation.
    said, _, other = agree("rank", device="2xH100-80GB")
    assert len(said) == len(other) == 2, (said, other)
    for place in other:
        (row,) = (row for row in place["rows"] if row["category"] == "communication")
        assert [part["name"] for part in row["detail"]] == ["taken by NCCL"] and row["resident_bytes"] > 100 * MIB, row


def test_out_of_memory_is_told():
    _, _, recorded = both("run_out", device="24GiB")
    notes = [note for note in recorded["notes"] if " refused " in note]
    assert len(notes) == 1 and " refused 1.00 GiB to process " in notes[0], recorded["notes"]
    assert "recorded.py:" in notes[0] and " run_out" in notes[0] and "(23." not in notes[0].partition(";")[0], notes


# Each tensor is too large for what PyTorch has free: it takes a segment of the driver for each.
TAKERS = """
import json
import sys

import torch

MIB = 1 << 20


def weights():
    return torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")


class Model:
    def cache(self):
        return torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")


kept = [weights(), Model().cache()]
del kept[:]
torch.cuda.empty_cache()
last = Model().cache()
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(torch.cuda.memory_reserved(), file)
"""


def test_call_stacks_of_device_memory_have_the_functions_of_python():
    with tempfile.TemporaryDirectory() as folder:
        path, said, recording = (os.path.join(folder, name) for name in ("takers.py", "said", "recording"))
        with open(path, "w", encoding="utf-8") as file:
            file.write(TAKERS)
        done = memtally.run("run", "-q", "--on", "H100-80GB", "-o", recording, "--", engine.torch(), path, said)
        assert done.returncode == 0, done.stderr[-3000:]
        with open(said, encoding="utf-8") as file:
            reserved = json.load(file)

        def taken(at):
            entries = json.loads(memtally.must("report", "--json", "--at", at, "--top", "100000", recording).stdout)["stacks"]["entries"]
            return {word: sum(entry["bytes"] for entry in entries if entry["place"].startswith("gpu:") and
                              any(frame.startswith(name + " (") and "takers.py:" in frame for frame in entry["frames"]))
                    for name, word in (("weights", "weights"), ("Model.cache", "cache"), ("<module>", "all"))}

        assert taken("peak") == {"weights": 100 << 20, "cache": 64 << 20, "all": 164 << 20}, taken("peak")
        assert taken("exit") == {"weights": 0, "cache": reserved, "all": reserved} and reserved == 64 << 20, (taken("exit"), reserved)


if __name__ == "__main__":
    tap.main(globals())
