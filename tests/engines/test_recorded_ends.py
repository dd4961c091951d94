#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs on PyTorch that end in unusual ways, through `memtally run --on`: the status is the program's own, both observers say
the same to the end, and what it had on the device is told by what it was for."""

import functools
import os
import re

import engine
import observers
import tap
import torch_program

PROGRAM = os.path.join(torch_program.PROGRAMS, "ends.py")
WEIGHTS = 48 << 20  # of 3 x 4 x 1024 x 1024 numbers of 4 bytes


@functools.cache
def ended(way, status=0, devices=1):
    observed = observers.run_on("H100-80GB", engine.torch(), PROGRAM, way)
    assert observed.done.returncode == status, (observed.done.returncode, observed.done.stderr[-2000:])
    wrong = observers.disagreements(observed.account, observed.recording)
    assert not wrong, (way, wrong)
    found = [place for place in observed.report["places"] if place["place"].startswith("gpu:")]
    assert len(found) == devices, found
    return observed, {row["category"]: row["resident_bytes"] for row in found[0]["rows"]}


def test_a_script_that_fails():
    observed, rows = ended("fails", status=1)
    assert observed.done.stderr.strip().endswith(f"ValueError: a script of {WEIGHTS} bytes fails"), observed.done.stderr
    # Its traceback has the lines of the script alone.
    files = re.findall(r'File "([^"]+)"', observed.done.stderr)
    assert len(files) == 2 and all(os.path.samefile(file, PROGRAM) for file in files), observed.done.stderr
    assert rows["weights"] == WEIGHTS, rows


def test_an_import_that_fails_has_the_same_traceback():
    """Whose lines of importlib Python leaves out, as long as nobody else is between them."""
    plain, watched = (observers.run_on("H100-80GB", engine.torch(), PROGRAM, "fails_to_import", options=options).done.stderr
                      for options in (("--no-python",), ()))
    assert "RuntimeError: " in plain and watched == plain, (plain, watched)


def test_a_script_whose_last_thread_takes_the_memory():
    assert ended("ends_in_a_thread")[1]["weights"] == WEIGHTS


def test_a_script_that_ends_itself_in_a_thread():
    assert ended("exits_in_a_thread", status=7)[1]["weights"] == WEIGHTS


def test_a_script_that_becomes_another():
    observed, rows = ended("becomes_another")
    assert len(observed.recording.said("changes")) == 1, "one process"
    # What the first had is gone: there are never two of either.
    assert rows["weights"] == WEIGHTS, rows


def test_a_script_that_is_killed():
    assert ended("is_killed", status=128 + 9)[1]["weights"] == WEIGHTS


def test_a_script_that_aborts():
    assert ended("aborts", status=128 + 6)[1]["weights"] == WEIGHTS


def children_of(method):
    observed, rows = ended(method)
    assert len(observed.recording.said("changes")) == 2, "two children"
    assert rows["weights"] == 2 * WEIGHTS, rows


def test_children_that_are_spawned():
    children_of("spawn")


def test_children_of_a_server_of_forks():
    children_of("forkserver")


def test_children_that_are_forked():
    children_of("fork")


if __name__ == "__main__":
    tap.main(globals())
