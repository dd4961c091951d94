#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs whose memory is known, from recording to report: that there is an answer however they end,
that it is of the right moment, and that several processes are added up as of one.

RUNS in the environment says how many programs are ended at random moments."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time

import memtally
import tap

MIB = 1 << 20
PROGRAM = os.environ["MOMENTS_PROGRAM"]
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
RUNS = int(os.environ.get("RUNS", "10"))


def record(folder, *arguments, depth="default"):
    """Records the program; returns what it printed as a number, 0 where it printed nothing."""
    done = memtally.run("run", "-o", folder, "--depth", depth, "--", *arguments)
    lines = [line for line in done.stdout.splitlines() if line.isdigit()]
    return int(lines[0]) if lines else 0


def assert_answers(folder, what):
    """There is a tally that adds up, in every format and as a table."""
    document = memtally.report(folder)
    for place in document["places"]:
        memtally.assert_adds_up(place)
    for process in document["processes"]:
        for place in process["places"]:
            memtally.assert_adds_up(place)
    assert document["processes"], f"{what}: no process"
    memtally.must("report", folder, "--top", "3")
    return document


def ended_by(folder, pause, number, *arguments):
    """Starts a recording of the program and sends the program a signal after a pause."""
    with subprocess.Popen([memtally.program(), "run", "-o", folder, "--", *arguments], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as run:
        pid = None
        while pid is None and run.poll() is None:
            try:
                pid = memtally.child_of(run.pid)
            except AssertionError:
                continue
        time.sleep(pause)
        while pid is not None and run.poll() is None: # a signal that comes before exec may meet the watcher's handler
            with contextlib.suppress(ProcessLookupError): # it has ended, and memtally is not done with its recording
                os.kill(pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(1)
        run.wait()


def test_a_program_killed_at_a_random_moment_has_an_answer():
    chance = random.Random(20261122)
    for number in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            ended_by(f"{folder}/r", chance.random() ** 3 * 0.2, chance.choice(SIGNALS), PROGRAM, "churn")
            assert_answers(f"{folder}/r", f"kill {number}")


def test_programs_that_end_at_once_have_an_answer():
    for deed in ("abort", "constructor", "leave_main", "nothing"):
        for number in range(max(1, RUNS // 5)):
            with tempfile.TemporaryDirectory() as folder:
                record(f"{folder}/r", PROGRAM, deed)
                document = assert_answers(f"{folder}/r", f"{deed} {number}")
                if deed == "leave_main": # its memory is seen though its first thread has ended
                    assert memtally.host(document)["total_resident_bytes"] > 32 * MIB, document["places"]


def assert_full(place, *where):
    memtally.assert_adds_up(place)
    free = memtally.row(place, "cached")["resident_bytes"]
    assert free < 0.1 * place["total_resident_bytes"], (*where, free, place["total_resident_bytes"])


def test_a_plateau_is_shown_when_it_is_full():
    for depth in ("default", "full"):
        with tempfile.TemporaryDirectory() as folder:
            record(f"{folder}/r", PROGRAM, "plateau", depth=depth)
            assert_full(memtally.host(memtally.report(f"{folder}/r")), depth, "peak")
            heap = memtally.report(f"{folder}/r", "heap-peak")
            assert heap["moment"] == "heap-peak"
            assert_full(memtally.host(heap), depth, "heap-peak") # of its second round, of which there is no picture
            stacks = json.loads(memtally.must("report", f"{folder}/r", "--json", "--at", "heap-peak", "--top", "1").stdout)
            assert stacks["stacks"]["entries"][0]["bytes"] > 100 * MIB, (depth, stacks["stacks"])


def test_what_was_touched_before_a_mark_is_attributed_at_it():
    with tempfile.TemporaryDirectory() as folder:
        touched = record(f"{folder}/r", PROGRAM, "mark_touched")
        (mark,) = memtally.report(f"{folder}/r")["marks"]
        place = memtally.host(memtally.report(f"{folder}/r", f"{mark['time_ns']}ns"))
        memtally.assert_adds_up(place)
        assert touched <= place["total_resident_bytes"] <= touched + 8 * MIB, place
        assert place["unattributed_bytes"] <= 0.01 * place["total_resident_bytes"], place


def test_many_marks_leave_something_for_the_peak():
    with tempfile.TemporaryDirectory() as folder:
        record(f"{folder}/r", PROGRAM, "mark_often")
        document = memtally.report(f"{folder}/r")
        assert len(document["marks"]) == 20000, len(document["marks"])
        assert document["processes"][0]["pictures_skipped"] == 0, document["processes"]
        place = memtally.host(document)
        assert place["total_resident_bytes"] > 20 * MIB and place["unattributed_bytes"] < 0.02 * place["total_resident_bytes"], place


def test_memory_that_is_taken_past_libc_is_in_a_picture_from_outside():
    for depth in ("default", "full"):
        with tempfile.TemporaryDirectory() as folder:
            counted = record(f"{folder}/r", PROGRAM, "raw", depth=depth)
            assert counted > 159 * MIB, counted
            document = assert_answers(f"{folder}/r", "raw")
            place = memtally.host(document)
            assert abs(place["total_resident_bytes"] / counted - 1) <= 0.005, (depth, place["total_resident_bytes"], counted)
            assert 159 * MIB <= place["unattributed_bytes"] < 160 * MIB, (depth, place)
            assert any("159 MiB that are unattributed lie in mappings for which no call was seen" in note for note in document["notes"]), document["notes"]


def test_what_the_unwinder_takes_is_the_recorders():
    """libunwind keeps a table of 256 KiB for each thread that it walks."""
    own = {}
    for stacks in ("fp", "unwind"):
        with tempfile.TemporaryDirectory() as folder:
            done = memtally.run("run", "-o", f"{folder}/r", "--depth", "full", "--stacks", stacks, "--", PROGRAM, "leave_main")
            if "libunwind.so.8 is not installed" in done.stderr:
                raise tap.Skip("libunwind.so.8 is not installed")
            place = memtally.host(assert_answers(f"{folder}/r", stacks))
            own[stacks] = memtally.detail(place, "runtime", "memtally recorder")
    assert own["unwind"] >= own["fp"] + 256 * 1024, own


def most_bytes(document, shown):
    """What the report says that the processes may have had together between two looks."""
    notes = re.findall(r"up to (\d+) MiB together for a moment", "\n".join(document["notes"]))
    return (int(notes[0]) + 1) * MIB if notes else shown


def peak_is_right(deed, unattributed):
    """The peak of a tree against the sum that the kernel gave the program itself. Libraries, of which the kernel counts
    a share that depends on who else runs, are some 2 MiB. On a busy machine nobody looks at a child between its touch
    and its parent's next step: then the report says how much it may have been."""
    with tempfile.TemporaryDirectory() as folder:
        truth = record(f"{folder}/r", PROGRAM, deed)
        document = assert_answers(f"{folder}/r", deed)
        place = memtally.host(document)
        shown = place["total_resident_bytes"]
        most = most_bytes(document, shown)
        figures = (deed, truth / MIB, shown / MIB, most / MIB, document["notes"])
        assert shown <= truth * 1.02 + 4 * MIB and truth * 0.93 - 2 * MIB <= most, figures
        assert shown >= 0.75 * truth, figures
        assert place["unattributed_bytes"] <= unattributed * shown, (deed, place["unattributed_bytes"] / MIB)
        return document


def test_processes_whose_peaks_alternate_are_added_up_as_of_one_moment():
    peak_is_right("alternate", 0.02)
    peak_is_right("alternate_heap", 0.02)


def test_what_a_server_loaded_before_it_forked_counts_once():
    peak_is_right("prefork", 0.02)


def test_shared_mappings_count_once():
    peak_is_right("shared", 0.02)


def test_a_child_that_allocates_nothing_has_what_its_parent_had():
    document = peak_is_right("quiet", 0.02)
    for process in document["processes"]:
        assert process["observed"] == "recorder", process


if __name__ == "__main__":
    tap.main(globals())
