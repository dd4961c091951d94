#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Caches of every kind, memory that is pinned or that processes share, and FlashInfer's buffers: what the tally has of them at a moment
that the program marks is what the program adds up itself, on the CPU and on a pretended device."""

import json
import os
import tempfile

import engine
import memtally
import tap
import torch_program

MIB = 1 << 20


def kept(place, *ways):
    """What the program said, the tallies of the host and of the device at the moment that it marked, and that of the host at its end:
    what is mapped by a name is known from a picture, of which there is one at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path, recording = os.path.join(folder, "figures"), os.path.join(folder, "recording")
        packages = os.path.join(torch_program.PROGRAMS, "packages")
        done = memtally.run("run", "-q", *memtally.PICTURES, "--on", "H100-80GB", "-o", recording, "--", engine.torch(),
                            os.path.join(torch_program.PROGRAMS, "kept.py"), place, ",".join(ways), path,
                            env=dict(os.environ, HF_HUB_OFFLINE="1", PYTHONPATH=packages), timeout=500)
        assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        (mark,) = [one for one in memtally.report(recording)["marks"] if one["name"] == "held"]
        report = memtally.report(recording, f"{mark['time_ns']}ns")
        end = memtally.host(memtally.report(recording, "exit"))
        for name in os.listdir(recording):
            if name.endswith(".trace"):
                with open(os.path.join(recording, name), encoding="utf-8") as file:
                    assert "gave up" not in file.read(), name
    device = [one for one in report["places"] if one["place"].startswith("gpu:")]
    for one in report["places"]:
        memtally.assert_adds_up(one)
    return said, memtally.host(report), device[0] if device else None, end


def parts(place, *names):
    """The sum over parts that are called so, whatever they are of."""
    return sum(part["allocated_bytes"] for row in place["rows"] for part in row["detail"] if part["name"] in names)


def found_of_models(place):
    return {"weights": parts(place, "parameters"), "kv_cache": parts(place, "cache"), "recurrent_state": parts(place, "state")}


def test_on_the_cpu():
    said, host, _, end = kept("cpu", "dynamic", "hybrid", "quantised", "pinned_and_shared", "workers")
    assert found_of_models(host) == {name: said[name] for name in found_of_models(host)}, (host, said)
    # 8 MiB each of a tensor that is shared and of the workers' batches.
    assert said["shared"] == 16 * MIB == parts(end, "tensors that processes share"), (said, end)
    assert not parts(host, "pinned for devices"), host


def test_on_a_device():
    """What a window or a quantised cache gives to attention is longer than what it holds, or not quantised: that is no cache."""
    said, host, device, end = kept("cuda", "flashinfer", "dynamic", "static", "sliding", "hybrid", "quantised", "state",
                                    "pinned_and_shared")
    on_host = said.pop("on_host")
    assert found_of_models(device) == {name: said[name] for name in found_of_models(device)}, (device, said)
    assert parts(host, "parameters") == on_host, (on_host, host)
    assert said["shared"] == 8 * MIB == parts(end, "tensors that processes share"), (said, end)
    # PyTorch pins powers of two: what it has beyond what was asked for is pinned as well.
    assert said["pinned"] <= parts(host, "pinned for devices") < said["pinned"] + MIB, (said, host)
    assert parts(device, "FlashInfer") == said["workspace"] >= 28 * MIB, (said, device)
    assert parts(host, "FlashInfer") == said["pinned workspace"] == 8 * MIB, (said, host)


if __name__ == "__main__":
    tap.main(globals())
