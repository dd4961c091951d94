# SPDX-License-Identifier: MIT
"""PyTorch on the CPU: what it was built for CUDA looks for are our look-alikes of CUDA's libraries, which know of no
device outside a rehearsal. All that is computed and allocated is its own."""

import json
import os
import re

import engine
import memtally
import torch_program

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "rehearse", "cuda_libraries.def")
# What the program says of itself: category, and names of its parts. What else lies in the mapping of a file is its own part
# of the weights, under the file's name: its header, and what was copied out of it.
PARTS = {"weights": ("weights", ("parameters", "buffers")), "kv_cache": ("kv_cache", ("cache",)),
         "recurrent_state": ("recurrent_state", ("state",)), "gradients": ("training", ("gradients",)),
         "optimizer state": ("training", ("optimizer state",))}


def stage(folder):
    """Links to the look-alikes under the names that PyTorch was linked with. Returns the environment to run it in."""
    with open(SOURCE, encoding="utf-8") as file:
        names = dict(re.findall(r'^(?:LIBRARY|FALLBACK)\("([^"]+)",\s*"([^"]+)"', file.read(), re.M))
    os.makedirs(folder)
    for parent, _, files in os.walk(os.path.join(os.environ["BUILD_DIR"], "src", "pretend", "cuda")):
        for name in files:
            found = re.fullmatch(r"libmemtally-pretend-cuda-(.+)\.so", name)
            if found and found[1] in names:
                os.symlink(os.path.join(parent, name), os.path.join(folder, names[found[1]]))
    return dict(os.environ, LD_LIBRARY_PATH=folder, HF_HUB_OFFLINE="1")


def program(name):
    return os.path.join(torch_program.PROGRAMS, name)


def record(folder, environment, *words, marked="held"):
    """Records a run of on_host.py: what it said, and the tallies of its peak and of the moment that it marked."""
    path, recording = os.path.join(folder, "figures"), os.path.join(folder, "recording")
    done = memtally.must("run", "-q", *memtally.PICTURES, "-o", recording, "--", engine.torch(), program("on_host.py"), *words, path,
                         env=environment, timeout=900)
    assert os.path.exists(path), done.stderr[-3000:]
    with open(path, encoding="utf-8") as file:
        said = json.load(file)
    peak = memtally.report(recording)
    (mark,) = [one for one in peak["marks"] if one["name"] == marked]
    for name in os.listdir(recording):
        if name.endswith(".trace"):
            with open(os.path.join(recording, name), encoding="utf-8") as file:
                assert "gave up" not in file.read(), name
    return said, memtally.host(peak), memtally.host(memtally.report(recording, f"{mark['time_ns']}ns"))


def recorded_parts(place):
    """What the tally has of each thing that the program says a sum of."""
    return {what: sum(part["allocated_bytes"] for part in memtally.row(place, category)["detail"] if part["name"] in names)
            for what, (category, names) in PARTS.items()}


def assert_true_to_the_program(said, peak, held):
    """Sums to the byte; no more than 1 % that nobody knows of, at the peak and where the program marked its moment."""
    assert recorded_parts(held) == {what: said.get(what, 0) for what in PARTS}, (recorded_parts(held), said)
    for what, place in (("peak", peak), ("held", held)):
        memtally.assert_adds_up(place)
        assert place["unattributed_bytes"] <= place["total_resident_bytes"] // 100, (what, place["unattributed_bytes"])
