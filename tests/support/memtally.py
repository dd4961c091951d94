# SPDX-License-Identifier: MIT
"""Running the built memtally and reading its JSON. Knows the build folder from BUILD_DIR."""

import json
import os
import re
import subprocess

MIB = 1024.0 * 1024.0
# For runs of a second: enough pictures for one of them to be taken while all buffers are alive, on a busy machine too.
PICTURES = ("--picture-share", "25")


def program():
    return os.path.join(os.environ["BUILD_DIR"], "src", "cli", "memtally")


def run(*arguments, timeout=240, **more):
    """Runs memtally with its output captured."""
    return subprocess.run(
        [program(), *arguments], capture_output=True, text=True, check=False, timeout=timeout, **more)


def must(*arguments, **more):
    """Runs memtally, which must succeed, and returns what it printed."""
    done = run(*arguments, **more)
    assert done.returncode == 0, f"memtally {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}"
    return done


def child_of(pid):
    """The process id of a child of `pid`."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parent = file.read().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == pid:
            return int(name)
    raise AssertionError(f"{pid} has no child")


def report(folder, moment="peak"):
    return json.loads(must("report", folder, "--json", "--at", moment).stdout)


def host(document):
    (place,) = [place for place in document["places"] if place["place"] == "host"]
    return place


def row(place, category):
    """The row of a category, or one of nothing."""
    for candidate in place["rows"]:
        if candidate["category"] == category:
            return candidate
    return {"resident_bytes": 0, "allocated_bytes": 0, "detail": []}


def detail(place, category, name):
    """The allocated bytes of a part of a row, None where it has no such part."""
    for part in row(place, category)["detail"]:
        if part["name"] == name:
            return part["allocated_bytes"]
    return None


def assert_adds_up(place):
    total = place["unattributed_bytes"] + sum(one["resident_bytes"] for one in place["rows"])
    assert total == place["total_resident_bytes"], (total, place["total_resident_bytes"])
    for one in place["rows"]:
        assert one["resident_bytes"] == sum(part["resident_bytes"] for part in one["detail"]), one["category"]


BUFFER_LINE = re.compile(r"^\S*:?\s+(\S+)\s+(model|KV|RS|compute|output) buffer size =\s+([0-9.]+) MiB", re.M)
PART_OF_ROW = {
    "model": ("weights", "{}"),
    "KV": ("kv_cache", "{}"),
    "RS": ("recurrent_state", "{}"),
    "compute": ("activations", "{} compute"),
    "output": ("activations", "{} output"),
}


def logged_buffers(log):
    """What llama.cpp's log says of its buffers: {(type, kind): MiB as printed}, the last of each."""
    return {(match[1], match[2]): match[3] for match in BUFFER_LINE.finditer(log)}


def assert_buffers_are_as_logged(place, log):
    """Every buffer of the log is in the tally with the same size, to the digits that the log prints."""
    buffers = logged_buffers(log)
    kinds = {kind for _, kind in buffers}
    assert {"model", "KV", "compute", "output"} <= kinds, f"the log names only {kinds}:\n{log[-2000:]}"
    for (kind_of_memory, kind), logged in buffers.items():
        category, name = PART_OF_ROW[kind]
        allocated = detail(place, category, name.format(kind_of_memory))
        assert allocated is not None, f"{kind_of_memory} {kind} is not in the tally: {row(place, category)}"
        assert f"{allocated / MIB:.2f}" == logged, (kind_of_memory, kind, allocated / MIB, logged)


def has_all_buffers(folder):
    """Whether the picture of the peak was taken before the engine gave its first buffer back, which is that of its outputs."""
    place = host(report(folder))
    outputs = [part for part in row(place, "activations")["detail"] if "output" in part["name"]]
    return bool(outputs) and row(place, "weights")["allocated_bytes"] > 0 and row(place, "kv_cache")["allocated_bytes"] > 0


def profile_of_all_buffers(folder, *arguments, **more):
    """Profiles until the picture of the peak has every buffer, at most four times; returns the folder of the last."""
    for attempt in range(4):
        kept = f"{folder}-{attempt}"
        must("profile", *PICTURES, *arguments, "-o", kept, **more)
        if has_all_buffers(kept):
            return kept
    raise AssertionError(f"no picture of four profiles has all buffers: {arguments}")


def assert_recorded_buffers_are_as_logged(folder, log):
    """As above, of a recording: at its peak, or else where it is steady. On a busy machine the highest picture may be
    the one taken when the engine has already given its first buffer back."""
    try:
        assert_buffers_are_as_logged(host(report(folder)), log)
    except AssertionError:
        assert_buffers_are_as_logged(host(report(folder, "steady")), log)
