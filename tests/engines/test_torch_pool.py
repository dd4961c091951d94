#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch with our pool in the place of its allocator, and under it, on a pretended device. What tensors take is counted by
PyTorch's own allocator in a run beside it, and what the device gave is in the rehearsal's account."""

import functools
import json
import os
import pickle
import subprocess
import tempfile

import engine
import memtally
import pooled
import tap

MIB = 1 << 20
PARAMETERS = 8 * 1001 * 1000 * 4  # bytes
rehearsed = functools.cache(pooled.rehearse)


def rows(name):
    """Bytes by category on the device."""
    (place,) = [place for place in rehearsed(name, "layers", "24GiB")[1]["document"]["places"] if place["place"] == "gpu:0"]
    return {row["category"]: row["allocated_bytes"] for row in place["rows"]}


def test_the_pool_hands_out_what_pytorch_counts_of_its_own():
    """Both round to 512 bytes; expandable segments are cut without a rest."""
    own, pool = (rehearsed(name, "layers", "24GiB")[0] for name in ("expandable", "pool"))
    assert pool["pool"]["peak_live"] == own["live"] > 64 * MIB, (pool, own)


def test_the_device_gives_what_the_pool_says_and_a_context():
    said, seen = rehearsed("pool", "layers", "24GiB")
    assert seen["peak"] == said["pool"]["peak_reserved"] + rows("pool")["context"], (said, seen["peak"], rows("pool"))


def test_categories_stay():
    own, pool = rows("expandable"), rows("pool")
    for category in ("weights", "activations", "workspace"):
        assert own[category] == pool[category] > 0, (category, own, pool)
    states = 2 * PARAMETERS  # of the optimizer; with as much again as gradients where these lie outside the peak's blocks
    assert states <= pool["training"] <= states + PARAMETERS + 64 * 512, pool


def test_pytorch_takes_its_segments_from_the_pool():
    said, _ = rehearsed("segments", "layers", "24GiB")
    assert said["pool"]["live"] == said["reserved"] > 64 * MIB, said


def test_memory_viz_has_each_block_and_each_page():
    with tempfile.TemporaryDirectory() as folder:
        path, figures = os.path.join(folder, "recording"), os.path.join(folder, "figures.json")
        memtally.must("run", "-q", "--on", "24GiB", "-o", path, "--", engine.torch(), pooled.PROGRAM, "pool", "layers",
                      pooled.library(), figures)
        with open(figures, encoding="utf-8") as file:
            pool = json.load(file)["pool"]
        done = subprocess.run([memtally.program(), "report", path, "--format", "memory-viz"], capture_output=True, check=True)
    (trace,) = pickle.loads(done.stdout)["device_traces"]
    actions = [entry["action"] for entry in trace]
    assert actions.count("alloc") == pool["n_allocations"] > 100, (actions.count("alloc"), pool)
    assert actions.count("segment_alloc") == pool["n_pages_made"] > 32, (actions.count("segment_alloc"), pool)
    sizes = {entry["size"] for entry in trace if entry["action"] == "alloc"}
    wanted = {-(-size // 512) * 512 for size in (4000 * 1000, 4000, 4000 * 5100)}  # a layer's weights, its bias, the largest batch
    assert wanted <= sizes, sizes


def test_pages_move_to_where_pytorch_is_refused():
    own, pool = (rehearsed(name, "fragmented", "2GiB") for name in ("PyTorch", "pool"))
    assert own[0] is None and own[1]["refuse"] > 0, own
    assert pool[0]["pool"]["n_pages_moved"] > 0 and pool[0]["pool"]["peak_live"] == 1800 * MIB, pool[0]


def test_what_no_device_has_is_an_exception_and_the_program_goes_on():
    said, _ = rehearsed("pool", "fragmented", "2GiB")
    assert said["refused"] == "MemoryError" and said["after"] == 1000, said


if __name__ == "__main__":
    tap.main(globals())
