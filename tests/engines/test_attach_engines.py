#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally attach on a llama-server that is recorded at the same time: two observers of one process, from outside and from inside. And
on programs that no endpoint speaks for."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import engine
import memtally
import on_host
import ports
import tap

SHAPE = "--layers 8 --embedding-length 512 --ff-length 2048 --heads 8 --vocabulary 8192".split()


def wait_until_ready(port, process):
    while process.poll() is None:
        with contextlib.suppress(OSError, urllib.error.URLError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                if answer.status == 200:
                    return
        time.sleep(0.1)
    raise AssertionError("llama-server ended before it was ready")


def status_bytes(pid, key):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


@contextlib.contextmanager
def recorded_server(folder, *flags):
    """A server under the recorder: memtally's process, the server's, and its port. No processor lays out the weights anew."""
    model = os.path.join(folder, "model.gguf")
    memtally.must("sample-model", "custom", model, "--quiet", *SHAPE)
    port = ports.free_port()
    command = [memtally.program(), "run", "--quiet", "-o", os.path.join(folder, "rec"), "--", engine.llama_cpp("llama-server"),
               "-m", model, "--port", str(port), "-c", "1024", "-np", "2", "--no-repack", *flags]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_ready(port, process)
            yield process, memtally.child_of(process.pid), port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)


def attached(pid):
    """What is seen once the endpoint answered in its second, which a busy machine may not grant at once."""
    for _ in range(30):
        document = json.loads(memtally.must("attach", "--json", str(pid)).stdout)
        if document["settings"]["sequences"]:
            return document
    raise AssertionError(document["notes"])


def test_weights_from_outside_are_those_from_inside():
    with tempfile.TemporaryDirectory() as folder:
        with recorded_server(folder) as (_, pid, port):
            document = attached(pid)
            rss = status_bytes(pid, "Rss:")
        inside = memtally.row(memtally.host(memtally.report(os.path.join(folder, "rec"), "steady")), "weights")
        model = os.path.join(folder, "model.gguf")
    place = memtally.host(document)
    outside = memtally.row(place, "weights")
    assert outside["resident_bytes"] > 20 * memtally.MIB, outside
    assert abs(outside["resident_bytes"] - inside["resident_bytes"]) <= 0.02 * inside["resident_bytes"], (outside, inside)
    assert adds_up(place), place
    assert abs(place["total_resident_bytes"] - rss) <= 0.01 * rss, (place["total_resident_bytes"], rss)
    assert document["engine"]["name"] == "llama.cpp" and document["model"]["path"] == model, document["model"]
    assert (document["settings"]["context_tokens"], document["settings"]["sequences"]) == (512, 2), document["settings"]
    assert any(f"port {port}" in note for note in document["notes"]), document["notes"]


def near(one, other):
    return abs(one - other) <= 0.02 * other


def adds_up(place):
    return sum(row["resident_bytes"] or 0 for row in place["rows"]) + place["unattributed_bytes"] == place["total_resident_bytes"]


def compared(*flags):
    """Weights and cache on the host from outside and from inside, of one server."""
    with tempfile.TemporaryDirectory() as folder:
        with recorded_server(folder, *flags) as (_, pid, _):
            document = attached(pid)
        report = memtally.report(os.path.join(folder, "rec"), "steady")
    place = memtally.host(document)
    assert adds_up(place), place
    return {name: (memtally.row(place, name), memtally.row(memtally.host(report), name)["resident_bytes"])
            for name in ("weights", "kv_cache")}


def test_the_cache_follows_from_the_endpoints_word_and_the_header():
    """Mapped weights are measured; the cache, which nothing maps, is derived: 2 MiB of f16 keys and values a layer."""
    for flags in ([], ["-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"], ["--kv-unified"]):
        for name, (outside, inside) in compared(*flags).items():
            assert inside > 4 * memtally.MIB and near(outside["resident_bytes"], inside), (flags, name, outside, inside)
            assert outside["provenance"] == ("inferred" if name == "weights" else "derived"), (flags, outside)


def test_weights_that_no_mapping_tells_follow_from_the_model_file():
    for name, (outside, inside) in compared("--load-mode", "none").items():
        assert inside > 10 * memtally.MIB and near(outside["resident_bytes"], inside), (name, outside, inside)
        assert outside["provenance"] == "derived", outside


@contextlib.contextmanager
def started(*words, **settings):
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **settings) as process:
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(120)


def test_node_adds_up_and_has_no_model():
    program = 'const held = Buffer.alloc(64 << 20, 1); console.log("ready"); process.stdin.resume(); process.stdin.on("end", () => held[0])'
    with started(engine.node(), "-e", program) as process:
        document = json.loads(memtally.must("attach", "--json", str(process.pid)).stdout)
        rss = status_bytes(process.pid, "Rss:")
    place = memtally.host(document)
    assert adds_up(place) and abs(place["total_resident_bytes"] - rss) <= 0.01 * rss, (place["total_resident_bytes"], rss)
    assert place["unattributed_bytes"] >= 60 * memtally.MIB, place
    assert not [row for row in place["rows"] if row["category"] in ("weights", "kv_cache")], place


def test_of_a_program_with_pytorch_nothing_tells_the_weights():
    program = 'import sys, torch; held = torch.ones(16 << 20); print("ready", flush=True); sys.stdin.read()'
    with tempfile.TemporaryDirectory() as folder:
        environment = on_host.stage(os.path.join(folder, "libraries"))
        with started(engine.torch(), "-c", program, env=environment) as process:
            document = json.loads(memtally.must("attach", "--json", str(process.pid)).stdout)
            rss = status_bytes(process.pid, "Rss:")
    place = memtally.host(document)
    assert adds_up(place) and abs(place["total_resident_bytes"] - rss) <= 0.01 * rss, (place["total_resident_bytes"], rss)
    for name in "weights", "kv_cache":
        row = memtally.row(place, name)
        assert row["resident_bytes"] is None and row["provenance"] is None, row
    assert place["unattributed_bytes"] + memtally.row(place, "runtime")["resident_bytes"] >= 64 * memtally.MIB, place


def test_without_the_endpoint_the_cache_is_unknown():
    with tempfile.TemporaryDirectory() as folder:
        with recorded_server(folder) as (_, pid, _):
            document = json.loads(memtally.must("attach", "--json", "--no-endpoint", str(pid)).stdout)
            text = memtally.must("attach", "--no-endpoint", str(pid)).stdout
    place = memtally.host(document)
    row = memtally.row(place, "kv_cache")
    assert row["resident_bytes"] is None and row["allocated_bytes"] is None and adds_up(place), place
    assert memtally.row(place, "weights")["resident_bytes"] > 20 * memtally.MIB, place
    assert [line for line in text.splitlines() if line.startswith("kv_cache") and "unknown" in line], text


if __name__ == "__main__":
    tap.main(globals())
