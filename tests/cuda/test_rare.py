#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the recorder writes of calls that no rehearsal has: arrays, multicast objects, memory of others, graphs."""

import contextlib
import glob
import json
import os
import subprocess
import tempfile

import memtally
import tap

MIB = 1 << 20
PHYSICAL, IMPORTED, ARRAY = 4, 5, 8  # enum mt_device_kind


@contextlib.contextmanager
def driver():
    """A folder with the driver under its name."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.environ["CUDA_FAKE_DRIVER"], os.path.join(folder, "libcuda.so.1"))
        yield folder


def record(word):
    """The events of the program, and the report."""
    with driver() as folder:
        recording = os.path.join(folder, "recording")
        done = memtally.run("run", "-q", "-o", recording, "--", os.environ["CUDA_RARE"], word, env=dict(os.environ, LD_LIBRARY_PATH=folder))
        assert done.returncode == 0 and done.stdout == "done\n", done
        events = []
        for path in glob.glob(os.path.join(recording, "[0-9]*.mtz")):
            said = subprocess.run([os.environ["CUDA_OBSERVERS"], "recording", path], capture_output=True, text=True, check=True, timeout=60)
            events += [(line.split()[0], [int(field) for field in line.split()[1:]]) for line in said.stdout.splitlines()]
        return events, json.loads(memtally.must("report", "--json", recording).stdout)


def given(events, kind):
    return [fields[3] for word, fields in events if word == "DEVICE_ALLOC" and fields[1] == kind]


def test_an_array_takes_what_its_elements_do():
    events, _ = record("arrays")
    levels = sum((256 >> level) ** 2 * 4 * 5 for level in range(9))
    # That of which tiles are mapped later has none of its own.
    assert given(events, ARRAY) == [2048 * 2048 * 4, 1024 * 512 * 4, 64 * 64 * 16 * 8, levels], events
    gone = [fields[1] for word, fields in events if word == "DEVICE_FREE"]
    first = next(fields[2] for word, fields in events if word == "DEVICE_ALLOC")
    assert gone == [first], events


def test_memory_of_a_multicast_object_counts_once():
    events, _ = record("multicast")
    assert given(events, PHYSICAL) == [4 * MIB], events
    memory = next(fields[2] for word, fields in events if word == "DEVICE_ALLOC")
    maps = [fields[2] for word, fields in events if word == "DEVICE_MAP"]
    assert len(maps) == 2 and maps.count(memory) == 1, events


def test_memory_that_others_made_takes_nothing():
    events, report = record("external")
    assert given(events, IMPORTED) == [0, 0, 0], events
    (place,) = (place for place in report["places"] if place["place"].startswith("gpu:"))
    assert place["total_resident_bytes"] in (0, 100 * MIB), place


def test_a_graph_takes_memory_when_it_is_first_started():
    events, report = record("graphs")
    # Asked before and after the first start, and not again.
    used = [fields[1] for word, fields in events if word == "DEVICE_USED"]
    assert used == [100 * MIB, 112 * MIB], events
    (place,) = (place for place in report["places"] if place["place"].startswith("gpu:"))
    rows = {row["category"]: row["resident_bytes"] for row in place["rows"]}
    assert rows["graphs"] == 12 * MIB and place["total_resident_bytes"] == 112 * MIB, place


def test_a_child_forked_while_another_thread_counts_waits_for_nobody():
    with driver() as folder:
        words = [os.environ["CUDA_FORKED"], os.environ["RECORDER"]]
        done = subprocess.run(words, env=dict(os.environ, LD_LIBRARY_PATH=folder), capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done


if __name__ == "__main__":
    tap.main(globals())
