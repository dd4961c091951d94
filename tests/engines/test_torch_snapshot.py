#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A snapshot that PyTorch itself dumped, against what PyTorch counts and what the program's tensors have."""

import functools
import json
import os
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


if __name__ == "__main__":
    tap.main(globals())
