#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A rehearsal against the real run of the same program on the CPU, under the recorder: host buffers to the byte."""

import json
import os
import signal
import subprocess
import tempfile
import time

import engine
import memtally
import rehearsal
import tap

SCRATCH = tempfile.TemporaryDirectory()
CATEGORIES = ("weights", "kv_cache", "recurrent_state", "activations")
# No device, though the rehearsed program sees one that it could take; one thread, a run each.
ALONE = ("-dev", "none", "-t", "1")


def model(shape, kind, *smaller):
    path = os.path.join(SCRATCH.name, f"{shape}-{kind}.gguf")
    if not os.path.exists(path):
        memtally.must("sample-model", shape, path, "--random", "--type", kind, *smaller)
    return path


def buffers(place):
    """{(category, kind of memory): bytes} of the engine's own buffers, whatever else the parts are called by."""
    found = {}
    for category in CATEGORIES:
        for part in memtally.row(place, category)["detail"]:
            kind = part["name"].replace(":", " ").split()[0]
            if not kind.startswith("CPU"):  # the header of the mapped file, which is no buffer
                continue
            if category == "activations":
                kind += " output" if "output" in part["name"] else " compute"
            found[category, kind] = found.get((category, kind), 0) + part["allocated_bytes"]
    return found


def rehearsed(command):
    # What else it wanted of the device would show as a row of it.
    document = rehearsal.run(command, 1, size="1GiB", flags=["--requests", "0"])
    for place in document["places"]:
        if place["place"] != "host":
            assert [row["category"] for row in place["rows"]] in ([], ["context"]), place
    return buffers(memtally.host(document))


def pictured(folder, least):
    """The buffers in a picture that has all of them, else None: the peak may come when the first is given back, and on
    a busy machine a second's run may have no picture between. A context that is being made has a small compute buffer
    first, so that of such pictures the one with most counts."""
    whole = []
    for moment in ("peak", "steady", "exit"):
        real = buffers(memtally.host(memtally.report(folder, moment)))
        if {category for category, _ in real} >= {"weights", "kv_cache", "activations"} and len(real) >= least:
            whole.append(real)
    return max(whole, key=lambda real: sum(real.values()), default=None)


def assert_same_buffers(name, record, command, least):
    planned = rehearsed(command)
    for attempt in range(4):
        folder = os.path.join(SCRATCH.name, f"{name}-{attempt}")
        record(folder)
        real = pictured(folder, least)
        if real:
            assert planned == real, f"rehearsed {planned}\nbut really {real}"
            return
    raise AssertionError("no picture of four runs has all buffers")


def run_bench(name, path, least, *flags):
    command = [engine.llama_cpp("llama-bench"), "-m", path, "-p", "32", "-n", "4", "-r", "1", *ALONE, *flags]
    assert_same_buffers(name, lambda folder: memtally.must("run", *memtally.PICTURES, "-o", folder, "--", *command), command, least)


def serve_a_second(folder, command):
    server = subprocess.Popen([memtally.program(), "run", *memtally.PICTURES, "-o", folder, "--", *command],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = engine.listening(server, 120)
    time.sleep(1)  # a server that is told to end before its loop has begun does not
    server.send_signal(signal.SIGTERM)
    try:
        server.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGTERM)  # the second one ends it at once
        server.communicate(timeout=200)
    assert b"listening" in text, text[-2000:]


def run_server(name, path, *flags):
    command = [engine.llama_cpp("llama-server"), "-m", path, "--no-warmup", "-fit", "off", "--port", "0", *ALONE, *flags]
    assert_same_buffers(name, lambda folder: serve_a_second(folder, command), command, 4)


def test_weights_that_are_repacked_for_the_processor():
    run_bench("repacked", model("smollm-135m", "q4_0"), 5)


def test_weights_that_are_mapped():
    run_bench("mapped", model("smollm-135m", "q8_0"), 4)


def test_weights_that_are_read():
    run_bench("read", model("smollm-135m", "q8_0"), 4, "-lm", "none")


def test_a_quantised_cache_and_small_batches():
    run_bench("small", model("smollm-135m", "q4_k"), 4, "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "1", "-ub", "64")


def test_a_server_with_two_sequences():
    run_server("server", model("smollm-135m", "q8_0"), "-c", "2048", "-np", "2")


def test_a_server_with_windowed_layers():
    run_server("windows", model("gemma-3-1b", "q8_0", "--layers", "6"), "-c", "4096", "-np", "1", "-fa", "off")


if __name__ == "__main__":
    tap.main(globals())
