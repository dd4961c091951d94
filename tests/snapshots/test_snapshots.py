#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Snapshots of PyTorch's allocator, in the form that torch.cuda.memory._snapshot() has, written by
Python's own pickle; and the formats of others' viewers.

The figures that a report must show are counted here by a plain model of an allocator."""

import json
import os
import pickle
import random
import resource
import subprocess
import sys
import tempfile

import memtally
import tap

MIB = 1 << 20
TRAIN = [{"name": "empty", "filename": "/t/train.py", "line": 7}, {"name": "<module>", "filename": "/t/train.py", "line": 9}]
ADAM = [{"name": "_init_group", "filename": "/v/torch/optim/adam.py", "line": 182}] + TRAIN
MOVE = [{"name": "_apply", "filename": "/v/torch/nn/modules/module.py", "line": 955}] + TRAIN


class Allocator:
    """Segments of 2 MiB of which blocks are given out from the left; a plain model with its history."""

    def __init__(self, seed, devices=1):
        self.random = random.Random(seed)
        self.segments = [[] for _ in range(devices)]
        self.traces = [[] for _ in range(devices)]
        self.live = {}
        self.now = 1_700_000_000_000_000
        self.held = [0] * devices
        self.most = [0] * devices
        self.most_by_stack = [{} for _ in range(devices)]

    def note(self, device, action, address, size, frames):
        self.now += self.random.randint(0, 3)
        self.traces[device].append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.now,
                                    "frames": frames})

    def allocate(self, device, requested, frames):
        size = (requested + 511) // 512 * 512
        for segment in self.segments[device]:
            if segment["room"] >= size:
                break
        else:
            total = max(2 * MIB, size)
            segment = {"address": 0x7F0000000000 + (device << 36) + len(self.segments[device]) * (64 << 20), "total": total,
                       "room": total, "blocks": []}
            self.segments[device].append(segment)
            self.note(device, "segment_alloc", segment["address"], total, frames)
        address = segment["address"] + segment["total"] - segment["room"]
        segment["room"] -= size
        block = {"address": address, "size": size, "requested_size": requested, "state": "active_allocated", "frames": frames}
        segment["blocks"].append(block)
        self.live[address] = (device, block)
        self.note(device, "alloc", address, requested, frames)
        self.held[device] += requested
        if self.held[device] >= self.most[device]:
            self.most[device] = self.held[device]
            by_stack = {}
            for where, one in self.live.values():
                if where == device:
                    name = one["frames"][0]["name"] if one["frames"] else ""
                    by_stack[name] = by_stack.get(name, 0) + one["requested_size"]
            self.most_by_stack[device] = by_stack
        return address

    def free(self, address):
        device, block = self.live.pop(address)
        self.note(device, "free_requested", address, block["size"], [])
        # PyTorch says the size that was asked for.
        self.note(device, "free_completed", address, block["requested_size"], [])
        block["state"] = "inactive"
        block["frames"] = []
        self.held[device] -= block["requested_size"]

    def snapshot(self, history=None):
        segments = []
        for device, all_of_it in enumerate(self.segments):
            for segment in all_of_it:
                blocks = list(segment["blocks"])
                if segment["room"]:
                    blocks.append({"address": segment["address"] + segment["total"] - segment["room"], "size": segment["room"],
                                   "requested_size": 0, "state": "inactive", "frames": []})
                active = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
                segments.append({"device": device, "address": segment["address"], "total_size": segment["total"],
                                 "allocated_size": active, "active_size": active, "segment_type": "small",
                                 "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks})
        traces = [trace[-history:] if history else trace for trace in self.traces]
        return {"segments": segments, "device_traces": traces, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
                "external_annotations": []}


def used(seed, devices=1, steps=300):
    allocator = Allocator(seed, devices)
    for _ in range(steps):
        if allocator.live and allocator.random.random() < 0.45:
            allocator.free(allocator.random.choice(list(allocator.live)))
        else:
            allocator.allocate(allocator.random.randrange(devices), allocator.random.randint(1, 3 * MIB),
                               allocator.random.choice([TRAIN, ADAM, MOVE, []]))
    return allocator


def write(folder, value, protocol=4):
    path = os.path.join(folder, "snapshot.pickle")
    with open(path, "wb") as file:
        pickle.dump(value, file, protocol=protocol)
    return path


def place_of(document, device):
    (place,) = [place for place in document["places"] if place["place"] == f"gpu:{device}"]
    memtally.assert_adds_up(place)
    return place


def assert_refused(data, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bad.pickle")
        with open(path, "wb") as file:
            file.write(data)
        done = memtally.run("report", path)
        assert done.returncode == 2, (done.returncode, done.stderr)
        for word in words:
            assert word in done.stderr, (word, done.stderr)
        return done.stderr


def test_what_blocks_hold_when_the_snapshot_is_made_adds_up():
    for seed, protocol in enumerate((2, 3, 4, 5)):
        allocator = used(seed, devices=2)
        with tempfile.TemporaryDirectory() as folder:
            document = memtally.report(write(folder, allocator.snapshot(), protocol), "exit")
        for device in (0, 1):
            place = place_of(document, device)
            blocks = [b for d, b in allocator.live.values() if d == device]
            by = lambda name: sum(b["requested_size"] for b in blocks if b["frames"] and b["frames"][0]["name"] == name)
            assert place["total_resident_bytes"] == sum(s["total"] for s in allocator.segments[device])
            assert memtally.row(place, "training")["resident_bytes"] == by("_init_group")
            assert memtally.row(place, "weights")["resident_bytes"] == by("_apply")
            rest = sum(b["requested_size"] for b in blocks if not b["frames"]) + by("empty")
            assert place["unattributed_bytes"] == rest, (place["unattributed_bytes"], rest)
            cached = memtally.row(place, "cached")
            assert cached["provenance"] == "exact", cached
            rounding = sum(b["size"] - b["requested_size"] for b in blocks)
            assert memtally.detail(place, "cached", "rounding of sizes") == rounding


def test_the_peak_is_the_one_that_the_history_has():
    for seed in range(6):
        allocator = used(seed)
        with tempfile.TemporaryDirectory() as folder:
            place = place_of(memtally.report(write(folder, allocator.snapshot())), 0)
        most = allocator.most_by_stack[0]
        assert memtally.row(place, "training")["resident_bytes"] == most.get("_init_group", 0)
        assert memtally.row(place, "weights")["resident_bytes"] == most.get("_apply", 0)
        assert place["unattributed_bytes"] == most.get("empty", 0) + most.get("", 0)


def test_a_history_that_begins_late_is_completed_from_the_blocks():
    allocator = used(11, steps=400)
    whole, short = allocator.snapshot(), allocator.snapshot(history=120)
    with tempfile.TemporaryDirectory() as folder:
        at_end = [place_of(memtally.report(write(folder, one), "exit"), 0) for one in (whole, short)]
        peak = place_of(memtally.report(write(folder, short)), 0)
    assert at_end[0]["rows"] == at_end[1]["rows"]
    assert peak["total_resident_bytes"] >= peak["unattributed_bytes"]


def test_segments_that_were_given_back_are_there_at_the_peak():
    allocator = Allocator(1)
    big = allocator.allocate(0, 40 * MIB, MOVE)
    allocator.free(big)
    allocator.note(0, "segment_free", allocator.segments[0][0]["address"], 40 * MIB, [])
    del allocator.segments[0][0]
    allocator.allocate(0, MIB, MOVE)
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, allocator.snapshot())
        peak, end = place_of(memtally.report(path), 0), place_of(memtally.report(path, "exit"), 0)
    assert peak["total_resident_bytes"] == 40 * MIB, peak
    assert memtally.row(peak, "weights")["resident_bytes"] == 40 * MIB
    assert end["total_resident_bytes"] == 2 * MIB


def test_a_place_that_disagrees_with_pytorch_is_not_exact():
    allocator = used(3)
    snapshot = allocator.snapshot()
    for segment in snapshot["segments"]:
        segment["allocated_size"] += 512
    with tempfile.TemporaryDirectory() as folder:
        place = place_of(memtally.report(write(folder, snapshot), "exit"), 0)
    assert memtally.row(place, "cached")["provenance"] == "derived"


def test_call_stacks_have_functions_files_and_lines():
    allocator = used(5)
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, allocator.snapshot())
        folded = memtally.must("report", path, "--at", "exit", "--format", "folded").stdout
        speedscope = json.loads(memtally.must("report", path, "--at", "exit", "--format", "speedscope").stdout)
    live = sum(b["requested_size"] for _, b in allocator.live.values())
    assert "gpu:0;<module> (/t/train.py:9);empty (/t/train.py:7);_init_group (/v/torch/optim/adam.py:182) " in folded, folded
    assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) == live
    (profile,) = speedscope["profiles"]
    assert profile["endValue"] == sum(profile["weights"]) == live and profile["unit"] == "bytes"
    assert len(profile["samples"]) == len(profile["weights"])
    names = [speedscope["shared"]["frames"][i] for i in profile["samples"][0]]
    assert names.pop(0) == {"name": "gpu:0"}, names
    assert all(0 <= i < len(speedscope["shared"]["frames"]) for sample in profile["samples"] for i in sample)
    assert names[0] == {"name": "<module>", "file": "/t/train.py", "line": 9} or len(names) == 1, names


def test_memory_that_ran_out_is_said_with_who_asked():
    allocator = used(6)
    allocator.traces[0].append({"action": "oom", "device_free": 123456, "size": 7 * MIB, "stream": 0,
                                "time_us": allocator.now + 1, "frames": ADAM})
    with tempfile.TemporaryDirectory() as folder:
        notes = " ".join(memtally.report(write(folder, allocator.snapshot()))["notes"])
    assert "7340032 bytes were asked for, where 123456 were free, by _init_group" in notes, notes


def test_pools_of_captured_graphs_are_graphs():
    allocator = used(7)
    snapshot = allocator.snapshot()
    for segment in snapshot["segments"]:
        segment["segment_pool_id"] = (0, 1)
    with tempfile.TemporaryDirectory() as folder:
        place = place_of(memtally.report(write(folder, snapshot), "exit"), 0)
    assert memtally.row(place, "graphs")["resident_bytes"] > 0 and place["unattributed_bytes"] == 0, place


class Bomb:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_nothing_in_a_pickle_is_executed():
    with tempfile.TemporaryDirectory() as folder:
        for protocol in (2, 4):
            path = write(folder, {"segments": [Bomb()], "device_traces": []}, protocol)
            done = memtally.run("report", path, cwd=folder)
            assert done.returncode == 2 and "never executes" in done.stderr, done.stderr
        assert not os.path.exists(os.path.join(folder, "executed"))


def test_bad_files_are_refused_with_the_byte():
    good = pickle.dumps(used(8, steps=12).snapshot(), protocol=4)
    assert_refused(good[: len(good) // 2], "byte")
    assert_refused(good[:-1], "ends before its last opcode", f"byte {len(good) - 1}")
    assert_refused(pickle.dumps({"a": 1}, protocol=4), "no snapshot")
    assert_refused(b"\x80\x09.", "protocol 9")
    assert_refused(b"\x80\x02e.", "mark")
    assert_refused(b"\x80\x02h\x05.", "never made")
    assert_refused(b"\x80\x02]r\xff\xff\xff\xff.", "higher number")
    assert_refused(b"\x80\x02X\xff\xff\xff\x7fabc.", "within a text")


def test_a_file_cut_at_any_byte_is_refused_or_read():
    data = pickle.dumps(used(9, steps=6).snapshot(), protocol=4)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cut.pickle")
        for length in range(2, len(data), 37):
            with open(path, "wb") as file:
                file.write(data[:length])
            assert memtally.run("report", path).returncode == 2, length


def test_a_small_file_cannot_stand_for_much():
    """Lists and dictionaries that are one object count once."""
    many = 20000
    block = [{"address": 512 * i, "size": 512, "state": "inactive", "frames": []} for i in range(many)]
    segment = {"device": 0, "address": 0, "total_size": 512 * many, "blocks": block}
    keys = {f"k{i}": i for i in range(many)}
    frames = [keys] * many
    entry = {"action": "alloc", "addr": 4096, "size": 512, "frames": frames}
    snapshot = {"segments": [segment] * many, "device_traces": [[entry] * many]}
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, snapshot)
        done = subprocess.run([memtally.program(), "report", "--json", path], capture_output=True, check=False, timeout=240,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (512 * MIB, 512 * MIB)))
        assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert place_of(document, 0)["total_resident_bytes"] == 512 * many, document["places"]
    assert f"{2 * (many - 1)} parts of the snapshot make no sense" in " ".join(document["notes"]), document["notes"]


def test_what_makes_no_sense_is_left_out_and_said():
    snapshot = used(10).snapshot()
    snapshot["segments"] += [7, {}, {"address": (1 << 64) - 1, "total_size": 5}, {"device": 99, "address": 0, "total_size": 1}]
    snapshot["segments"][0]["blocks"].append({"address": 1, "size": 1 << 62, "state": "inactive", "frames": []})
    snapshot["device_traces"][0] += [None, {"action": "alloc", "addr": -5, "size": 1 << 70}]
    with tempfile.TemporaryDirectory() as folder:
        document = memtally.report(write(folder, snapshot), "exit")
    place_of(document, 0)
    assert "7 parts of the snapshot make no sense" in " ".join(document["notes"]), document["notes"]


def test_other_moments_and_formats_say_what_there_is():
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, used(12).snapshot())
        done = memtally.run("report", path, "--at", "heap-peak")
        assert done.returncode == 2 and "ask for peak, exit or a time" in done.stderr, done.stderr
        document = memtally.report(path, "0s")
        assert place_of(document, 0)["total_resident_bytes"] >= 0


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a message of protocol buffers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 2:
            length, at = varint(data, at)
            assert at + length <= len(data)
            yield key >> 3, data[at : at + length]
            at += length
        else:
            assert key & 7 == 0, key
            value, at = varint(data, at)
            yield key >> 3, value


def test_a_trace_for_perfetto_has_the_sizes_of_the_timeline():
    with tempfile.TemporaryDirectory() as folder:
        recording, trace = os.path.join(folder, "r"), os.path.join(folder, "t.pftrace")
        memtally.must("run", "-o", recording, "--", sys.executable, "-c", "x = bytearray(80 << 20); del x")
        memtally.must("report", recording, "--format", "perfetto", "-o", trace)
        timeline = json.loads(memtally.must("report", recording, "--json").stdout)["timeline"]
        with open(trace, "rb") as file:
            packets = [dict(fields(packet)) for number, packet in fields(file.read()) if number == 1]
    names = {}
    values = []
    for packet in packets:
        if 60 in packet:
            track = dict(fields(packet[60]))
            names[track[1]] = track[2].decode()
        else:
            event = dict(fields(packet[11]))
            assert event[9] == 4 and names[event[11]] == "host, resident"
            values.append((packet[8], event[30]))
    assert values == [(point["time_ns"], point["resident_bytes"]) for point in timeline]
    assert max(bytes_ for _, bytes_ in values) > 80 * MIB


if __name__ == "__main__":
    tap.main(globals())
