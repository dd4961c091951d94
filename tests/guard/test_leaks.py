#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program that leaks, watched by memtally monitor and memtally guard: the alarm, and by the program's recording which category
and which call stack it is. The watcher's clock runs faster, the program's as always.

    LEAK_LIVE=1 test_leaks.py    with the watcher's clock as it is (6 minutes)

The program says by its own labels and functions what is to be found. Nothing is bound to a time: each test reads on until the
alarm has come."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

import tap

MEMTALLY = os.environ["MEMTALLY"]
LEAKER = os.environ["LEAKER"]
LIVE = "LEAK_LIVE" in os.environ
FOLDER = tempfile.mkdtemp(prefix="memtally-leaks-")
RATE = "0.05" if LIVE else "2"  # MiB a second


def fast(times):
    return os.environ | ({} if LIVE else {"LD_PRELOAD": os.environ["FAST_CLOCK_LIBRARY"], "FAST_CLOCK": times})


class Recorded:
    """The leaking program under the recorder; `pid` is its own."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(dir=FOLDER)
        words = [MEMTALLY, "run", "--quiet", "-o", os.path.join(self.folder, "rec"), "--", LEAKER, RATE]
        self.run = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # pylint: disable=consider-using-with
        self.pid = int(self.run.stdout.readline())
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        self.run.stdout.close()
        self.run.wait()


def check_growth(told):
    """What the program itself says: its cache grew, by what forget_to_give_back() took."""
    rows = {row["category"]: row["after_bytes"] - row["before_bytes"] for row in told["categories"]}
    assert max(rows, key=rows.get) == "kv_cache", told
    assert rows["kv_cache"] >= (1 << 20), told
    top = told["stacks"][0]
    assert (top["place"], top["frames"][0]) == ("host", "forget_to_give_back"), told
    assert "main" in top["frames"], told
    assert not [stack for stack in told["stacks"] if stack["frames"][0] == "come_and_go"], told
    # The one is of resident pages, the other of what was asked for: headers and a page for each piece apart.
    assert abs(top["bytes"] - rows["kv_cache"]) <= 0.05 * top["bytes"] + (1 << 20), told


def objects_until(words, is_last):
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=fast("60")) as monitor:
        told = []
        for line in monitor.stdout:
            told.append(json.loads(line))
            if is_last(told[-1]):
                break
        monitor.terminate()
        monitor.stdout.read()
    return told


def test_a_monitor_says_what_leaks_in_a_recorded_program():
    with Recorded() as program:
        words = [MEMTALLY, "monitor", "--pid", str(program.pid), "--interval", "20ms", "--json"]
        told = objects_until(words, lambda line: line["kind"] == "growth")
    assert told[-1]["kind"] == "growth", told[-1]
    assert told[-1]["place"] == f"pid:{program.pid}", told[-1]
    alarm = [line for line in told if line["kind"] == "monitor"][-1]
    assert alarm["leak"] in ("fast", "slow"), alarm
    assert alarm["full_s"] > 0, alarm
    check_growth(told[-1])


class Row(ctypes.Structure):
    """struct mt_grown_row."""

    _fields_ = [("place", ctypes.c_char_p), ("category", ctypes.c_int), ("before", ctypes.c_uint64), ("after", ctypes.c_uint64)]


class Entry(ctypes.Structure):
    """struct mt_stack_entry."""

    _fields_ = [("bytes", ctypes.c_uint64), ("count", ctypes.c_uint64), ("complete", ctypes.c_int), ("n_frames", ctypes.c_size_t),
                ("frames", ctypes.POINTER(ctypes.c_char_p)), ("place", ctypes.c_char_p)]  # fmt: skip


class Stacks(ctypes.Structure):
    """struct mt_stack_list."""

    _fields_ = [("interval", ctypes.c_uint64), ("n", ctypes.c_size_t), ("entries", ctypes.POINTER(Entry))]


class Growth(ctypes.Structure):
    """struct mt_recording_growth."""

    _fields_ = [("from_ns", ctypes.c_uint64), ("until_ns", ctypes.c_uint64), ("n_rows", ctypes.c_size_t),
                ("rows", ctypes.POINTER(Row)), ("stacks", ctypes.POINTER(Stacks))]  # fmt: skip


def grown(folder, span_ns):
    """What the library says: when, {what: how much more}, and {the innermost function: how much more}."""
    library = ctypes.CDLL(os.environ["LIBRARY"])
    library.mt_category_name.restype = ctypes.c_char_p
    recording, growth = ctypes.c_void_p(), ctypes.POINTER(Growth)()
    assert library.mt_recording_open(folder.encode(), ctypes.byref(recording), None) == 0
    arguments = [recording, ctypes.c_uint64(span_ns), ctypes.c_uint64(2**64 - 1), ctypes.c_size_t(0)]
    assert library.mt_recording_grown(*arguments, ctypes.byref(growth), None) == 0
    found = growth.contents
    rows = {library.mt_category_name(row.category).decode(): row.after - row.before for row in found.rows[: found.n_rows] if row.category}
    entries = found.stacks.contents.entries[: found.stacks.contents.n]
    stacks = {entry.frames[0].decode(): entry.bytes for entry in entries}
    span = (found.from_ns, found.until_ns)
    library.mt_recording_growth_destroy(growth)
    library.mt_recording_close(recording)
    return span, rows, stacks


def mark_ns(folder, name):
    told = json.loads(subprocess.run([MEMTALLY, "report", "--json", folder], stdout=subprocess.PIPE, check=True).stdout)
    (mark,) = [mark for mark in told["marks"] if mark["name"] == name]
    return mark["time_ns"]


def test_what_was_there_before_the_span_did_not_grow():
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        words = [MEMTALLY, "run", "--quiet", "-o", f"{folder}/rec", "--", LEAKER, "30", "24"]
        assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False, timeout=300).returncode == 0
        (begin, end), rows, stacks = grown(f"{folder}/rec", 2**62)
        # 96 pieces of a quarter of a MiB, and 4 MiB from the start.
        assert (stacks["forget_to_give_back"], stacks["main"]) == (24 << 20, 4 << 20), stacks
        half = mark_ns(f"{folder}/rec", "half")
        (later, last), late_rows, late_stacks = grown(f"{folder}/rec", end - half)
        assert last == end and later == half > begin, (begin, later, half, end)
        assert "main" not in late_stacks and late_stacks["forget_to_give_back"] == 12 << 20, late_stacks
        assert 0 < late_rows["kv_cache"] < rows["kv_cache"], (late_rows, rows)
        assert abs(late_rows["kv_cache"] - late_stacks["forget_to_give_back"]) <= 1 << 20, (late_rows, late_stacks)


def test_a_program_that_is_not_recorded_has_the_alarm_alone():
    with subprocess.Popen([LEAKER, RATE], stdout=subprocess.PIPE, text=True) as program:
        assert int(program.stdout.readline()) == program.pid
        words = [MEMTALLY, "monitor", "--pid", str(program.pid), "--interval", "20ms", "--json"]
        after = []

        def is_last(line):
            after.extend([1] if line["kind"] == "growth" or line["leak"] != "none" else [])
            return len(after) == 20

        told = objects_until(words, is_last)
        program.kill()
    assert len(after) == 20, told[-1]
    assert {line["kind"] for line in told} == {"monitor"}, told[-1]


def test_a_guard_says_what_leaks_before_the_limit():
    folder = os.path.join(tempfile.mkdtemp(dir=FOLDER), "rec")
    usual = ["env", "-u", "LD_PRELOAD", MEMTALLY]  # the program's clock is not the guard's
    words = [MEMTALLY, "guard", "--limit", "16GiB", "--", *usual, "run", "--quiet", "-o", folder, "--", LEAKER, RATE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=fast("25")) as guard:
        told = []
        for line in guard.stderr:
            told.append(line)
            if re.match(r" +forget_to_give_back$", line):
                break
        guard.terminate()
        guard.communicate()
    assert any(re.search(r"guard: the program leaks .* a minute, and is at its limit in \d+ min", line) for line in told), told
    rows = [line.split()[0] for line in told if " more, now " in line]
    assert rows and rows[0] == "kv_cache", told
    assert re.match(r" +forget_to_give_back$", told[-1]), told


def test_a_guard_says_what_grew_when_it_acts():
    folder = os.path.join(tempfile.mkdtemp(dir=FOLDER), "rec")
    words = [MEMTALLY, "guard", "--limit", "128MiB", "--", MEMTALLY, "run", "--quiet", "-o", folder, "--", LEAKER, "50"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    told = done.stderr.splitlines()
    # Both programs may stand still at the group's limit before the first signal is passed on.
    assert done.returncode in (128 + signal.SIGTERM, 128 + signal.SIGKILL), done
    rows = [line.split()[0] for line in told if " more, now " in line]
    assert rows and rows[0] == "kv_cache", done
    stack, *_ = [i for i, line in enumerate(told) if re.match(r" +forget_to_give_back$", line)]
    assert re.search(r"more in \d+ blocks? by$", told[stack - 1]), done
    assert told[stack + 1].strip() == "main", done


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
