#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A snapshot that PyTorch itself dumped, against what PyTorch counts and what the program's tensors have."""

import functools
import glob
import json
import os
import subprocess
import sys
import tempfile

import engine
import memtally
import tap
import torch_program


@functools.cache
def snapshot():
    """What the program counted, and the reports of its snapshot at the end and at the peak."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures")
        program = os.path.join(torch_program.PROGRAMS, "snapshot.py")
        memtally.must("rehearse", "--device", "24GiB", "--requests", "0", "--no-suggest", "--", engine.torch(), program, path)
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
        reports = [memtally.report(path + ".pickle", moment)["places"][0] for moment in ("exit", "peak")]
        return figures, *reports


def test_a_program_that_records_has_its_call_stacks_under_us():
    figures, _, _ = snapshot()
    assert figures["with frames"] == figures["allocations"] > 20, figures


def test_the_report_has_what_pytorch_counts():
    figures, end, peak = snapshot()
    for place in (end, peak):
        memtally.assert_adds_up(place)
    free = memtally.detail(end, "cached", "free in PyTorch's segments")
    assert end["total_resident_bytes"] == figures["reserved"]
    assert end["total_resident_bytes"] - free == figures["allocated"], (end, figures)
    assert memtally.row(end, "cached")["provenance"] == "exact"


def test_weights_and_the_optimizers_state_are_those_of_the_programs_tensors():
    figures, end, peak = snapshot()
    for place in (end, peak):
        assert memtally.row(place, "weights")["resident_bytes"] == figures["weights"], (place, figures)
        assert memtally.detail(place, "training", "state of the optimizer") == figures["optimizer"], (place, figures)


def test_the_peak_is_pytorchs_own_less_the_rounding_of_sizes():
    """PyTorch counts blocks, of which a large one keeps a rest of up to 1 MiB; its history has what was asked for."""
    figures, _, peak = snapshot()
    held = peak["total_resident_bytes"] - memtally.row(peak, "cached")["resident_bytes"]
    assert figures["most"] - (4 << 20) < held <= figures["most"], (held, figures)


def test_what_we_recorded_opens_in_pytorchs_viewer_and_has_our_figures():
    with tempfile.TemporaryDirectory() as folder:
        recording, exported = os.path.join(folder, "recording"), os.path.join(folder, "exported.pickle")
        program = os.path.join(torch_program.PROGRAMS, "snapshot.py")
        memtally.must("run", "--on", "24GiB", "-o", recording, "--", engine.torch(), program, os.path.join(folder, "figures"))
        memtally.must("report", recording, "--format", "memory-viz", "-o", exported)
        (ours,) = [place for place in memtally.report(recording)["places"] if place["place"] != "host"]
        (shown,) = memtally.report(exported)["places"]
        viewer = glob.glob(os.path.join(os.path.dirname(engine.torch()), "../lib/python3*/site-packages/torch/cuda/_memory_viz.py"))
        for command in ("trace_plot", "segment_plot"):
            page = os.path.join(folder, command + ".html")
            subprocess.run([sys.executable, *viewer, command, exported, "-o", page], check=True, timeout=120)
            assert os.path.getsize(page) > 10000
        lines = subprocess.run([sys.executable, *viewer, "trace", exported], check=True, timeout=120, capture_output=True,
                               text=True).stdout
    driver = memtally.row(ours, "context")["resident_bytes"]
    assert shown["total_resident_bytes"] == ours["total_resident_bytes"] - driver, (shown, ours)
    free = memtally.row(ours, "cached")["resident_bytes"]
    assert memtally.row(shown, "cached")["resident_bytes"] == free, (shown, ours)
    assert "cudaFree" in lines or "segment" in lines, lines[-500:]


if __name__ == "__main__":
    tap.main(globals())
