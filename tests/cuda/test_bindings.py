#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NVIDIA's module of the runtime for Python, in whose place a look-alike stands: a program that uses it, rehearsed; and
what a program goes without because of a rehearsal."""

import functools
import json
import os
import subprocess
import sys
import tempfile

import tap

GIB = 1 << 30
MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "bindings", "program.py")
MEMTALLY = os.environ["MEMTALLY"]


def environment():
    path = os.pathsep.join([os.path.join(HERE, "bindings"), os.environ["PYTHONPATH"]])
    return dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")


@functools.cache
def rehearsed(program=PROGRAM):
    """What the program printed, and the document."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([MEMTALLY, "rehearse", "--json", "-d", "H100-80GB,H100-80GB", "--folder", f"{folder}/kept", "--",
                               sys.executable, program], env=environment(), capture_output=True, text=True, check=False, timeout=100)
        assert done.stdout, done.stderr
        with open(f"{folder}/kept/output", encoding="utf-8") as file:
            said = file.read()
        return json.loads(said or "null"), json.loads(done.stdout)


def rows(document, name):
    return {row["category"]: row for row in next(place for place in document["places"] if place["place"] == name)["rows"]}


def test_without_a_rehearsal_the_packages_own_module_is_taken():
    done = subprocess.run([sys.executable, PROGRAM], env=environment(), capture_output=True, text=True, check=False, timeout=100)
    assert "a runtime that talks to the real driver only" in done.stderr, done


def test_devices_are_those_of_the_rehearsal():
    """An H100 with SXM has 132 processors, of capability 9.0."""
    said, _ = rehearsed()
    assert [said["devices"], said["device"], said["processors"], said["capability"]] == [2, 1, 132, 9], said


def test_memory_is_taken_of_the_device():
    said, document = rehearsed()
    assert said["taken"] == 100 * MIB and said["where"] == 1 and 79 * GIB < said["total"] < 80 * GIB, said
    held = rows(document, "gpu:1")
    assert sum(row["allocated_bytes"] for name, row in held.items() if name != "context") == 100 * MIB, held


def test_what_is_copied_there_comes_back():
    assert rehearsed()[0]["copied"] == list(range(8)) and rehearsed()[0]["handle"] == 64, rehearsed()[0]


def test_errors_have_the_runtimes_names():
    said, _ = rehearsed()
    assert said["refused"] == ["cudaErrorMemoryAllocation", None, "cudaErrorMemoryAllocation"], said
    assert said["capturing"] == "cudaStreamCaptureStatusNone", said


def test_a_function_that_is_not_there_is_told():
    said, document = rehearsed()
    assert said["has graphs"] is False, said
    assert any("cudaGraphCreate" in note for note in document["notes"]), document["notes"]


def test_the_band_holds_a_workspace_that_could_not_be_made():
    """By FlashInfer's documentation: 2 ranks of 8192 tokens of 4096 numbers in 2 bytes, 128 MiB, and three times as much
    that is passed on; one of the two ways that were tried."""
    _, document = rehearsed(os.path.join(HERE, "bindings", "workspace.py"))
    row = rows(document, "gpu:1")["communication"]
    assert [row["allocated_bytes"], row["low_bytes"], row["high_bytes"]] == [0, 0, 4 * 128 * MIB], row
    assert any("FlashInfer's all-reduce workspace" in note for note in document["notes"]), document["notes"]
    assert "communication" not in rows(document, "gpu:0"), document


if __name__ == "__main__":
    tap.main(globals())
