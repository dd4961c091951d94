#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs on PyTorch through `memtally run --on`: what the recorder wrote of devices is what the driver's account has, event by
event; PyTorch's own peaks and the program's sums over storages stand in the report."""

import functools
import json
import os
import re
import tempfile

import engine
import observers
import ports
import tap
import torch_program

PROGRAM = os.path.join(torch_program.PROGRAMS, "recorded.py")
RANKS = ("shard",)
DRIVERS = "taken by the driver as graphs were made"


def command(way, path):
    program = [PROGRAM, way, path]
    if way not in RANKS:
        return [engine.torch(), *program]
    port = str(ports.free_port())
    return [engine.torch(), "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port,
            *program]


@functools.cache
def seen(way, devices="H100-80GB", allocator=""):
    """What the program said by its ranks, and what both observers wrote, which must be the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures")
        observed = observers.run_on(devices, *command(way, path), env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=allocator))
        assert observed.done.returncode == 0, (way, observed.done.stderr[-3000:])
        said = []
        for name in (path, path + ".0", path + ".1"):
            if os.path.exists(name):
                with open(name, encoding="utf-8") as file:
                    said.append(json.load(file))
    wrong = observers.disagreements(observed.account, observed.recording)
    assert observed.account.changes() or observed.account.pools(), way
    assert not wrong, (way, wrong)
    return said, observed


def places(observed):
    """The devices in the order of their numbers, which the last figures of their UUIDs are."""
    found = [place for place in observed.report["places"] if place["place"].startswith("gpu:")]
    for place in found:
        rows = sum(row["resident_bytes"] for row in place["rows"])
        assert rows + place["unattributed_bytes"] == place["total_resident_bytes"], place
    return sorted(found, key=lambda place: place["uuid"])


def row(place, category):
    return sum(row["resident_bytes"] for row in place["rows"] if row["category"] == category)


def of_pytorch(place):
    """What PyTorch's allocator had of the device, and what of that was in blocks."""
    parts = [(row["category"], part) for row in place["rows"] for part in row["detail"]]
    reserved = sum(part["resident_bytes"] for category, part in parts
                   if category not in ("context", "communication") and part["name"] != DRIVERS)
    return reserved, reserved - row(place, "cached")


def peaks_are_pytorchs(said, observed, blocks=True):
    for one, place in zip(said, places(observed)):
        reserved, allocated = of_pytorch(place)
        assert reserved == one["reserved"], (reserved, one)
        assert not blocks or allocated == one["allocated"], (allocated, one)


def test_inference():
    said, observed = seen("infer")
    peaks_are_pytorchs(said, observed)


def test_training_with_adamw():
    said, observed = seen("train")
    peaks_are_pytorchs(said, observed)
    (place,) = places(observed)
    assert row(place, "weights") == said[0]["weights"] and row(place, "training") == said[0]["gradients"] + said[0]["state"], place


def test_checkpointing():
    peaks_are_pytorchs(*seen("recompute"))


def test_a_compiled_model():
    said, observed = seen("compiled")
    peaks_are_pytorchs(said, observed)
    (place,) = places(observed)
    assert row(place, "weights") == said[0]["weights"] and row(place, "training") == said[0]["gradients"] + said[0]["state"], place


def test_cuda_graphs():
    # What lies free in a graph's own pool is the graph's in the report.
    peaks_are_pytorchs(*seen("capture"), blocks=False)


def test_a_model_and_its_copy():
    said, observed = seen("copied")
    peaks_are_pytorchs(said, observed)
    (place,) = places(observed)
    assert row(place, "weights") == said[0]["weights"] and row(place, "training") == said[0]["gradients"] + said[0]["state"], (said, place)


def test_pools_of_the_programs_own_and_of_graphs_that_are_gone_are_no_graphs():
    said, observed = seen("pooled")
    peaks_are_pytorchs(said, observed, blocks=False)
    (place,) = places(observed)
    gone, kept = said[0]["graphs"]
    (graphs,) = (one for one in place["rows"] if one["category"] == "graphs")
    assert gone > 0 and [part["resident_bytes"] for part in graphs["detail"] if part["name"] == "private pool"] == [kept], (said, place)


def test_segments_that_expand():
    peaks_are_pytorchs(*seen("train", allocator="expandable_segments:True"))


def test_the_drivers_own_allocator():
    # Its blocks are the driver's, and not told apart from what its pools hold free.
    peaks_are_pytorchs(*seen("train", allocator="backend:cudaMallocAsync"), blocks=False)


def test_two_ranks_that_share_a_model():
    said, observed = seen("shard", devices="2xH100-80GB")
    assert len(said) == 2
    peaks_are_pytorchs(said, observed)
    for one, place in zip(said, places(observed)):
        # Each rank has a half of six layers of 4 MiB.
        assert one["weights"] == row(place, "weights") == 12 << 20, (one, place)
        assert row(place, "training") == one["gradients"] + one["state"], (one, place)


def test_generating_with_transformers():
    said, observed = seen("generate")
    peaks_are_pytorchs(said, observed)
    (place,) = places(observed)
    assert row(place, "kv_cache") == said[0]["kv"] > 0, (said, place)
    # PyTorch gives blocks out in 512 bytes; some parameters are no multiple of that.
    assert 0 <= row(place, "weights") - said[0]["weights"] < 1 << 15, (said, place)


def test_one_model_on_two_devices():
    said, observed = seen("dispatch", devices="2xH100-80GB")
    found = places(observed)
    assert len(found) == 2
    for weights, place in zip(said[0]["each"], found):
        assert 0 <= row(place, "weights") - weights < 1 << 15, (said, place)


def test_a_lie_of_either_is_found():
    """In a program's own run: in what was allocated, given back, mapped, and what the driver said."""
    for allocator in ("", "expandable_segments:True"):
        _, observed = seen("train", allocator=allocator)
        for kind, account, recording in observers.with_lies(observed.account, observed.recording):
            # PyTorch keeps the handle of what it maps, so that a mapping that went unseen changes nothing.
            assert kind == "DEVICE_MAP" or observers.disagreements(account, recording), kind


def refusal(way):
    said, observed = seen(way, devices="24GiB")
    (note,) = [note for note in observed.report["notes"] if " refused " in note]
    assert said[0]["refused"], said
    return note


def test_out_of_memory_in_backward():
    note = refusal("run_out_in_backward")
    assert " refused 32.00 GiB " in note and " backward < recorded.py:" in note and " run_out_in_backward" in note, note
    assert "; activations had grown most since it was half as full, by " in note, note


def test_out_of_memory_in_capture():
    note = refusal("run_out_in_capture")
    assert ", in graph capture, asked for by recorded.py:" in note and " run_out_in_capture" in note, note
    assert "; graphs had grown most since it was half as full, by " in note, note


def test_a_capture_that_fails_is_said_by_what_is_known_of_it():
    _, observed = seen("run_out_in_capture", devices="24GiB")
    (note,) = [note for note in observed.report["notes"] if note.startswith("The capture of a CUDA graph failed")]
    assert re.fullmatch(r"The capture of a CUDA graph failed \(\d+ MiB were free before it\): CUDA out of memory\. Tried to allocate (1\.00 GiB|1024\.00 MiB)\.",
                        note), note


def test_out_of_memory_in_loading():
    note = refusal("run_out_in_loading")
    assert ", in from_pretrained, asked for by " in note and " run_out_in_loading" in note, note
    assert "; most of it was activations (23." in note, note


if __name__ == "__main__":
    tap.main(globals())
