#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Unmodified llama.cpp programs under the recorder: the tally against the engine's own log."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import engine
import memtally
import ports
import tap

SCRATCH = tempfile.TemporaryDirectory()


def model(weight_type="q8_0", shape="smollm-135m"):
    path = os.path.join(SCRATCH.name, f"{shape}-{weight_type}.gguf")
    if not os.path.exists(path):
        memtally.must("sample-model", shape, path, "--random", "--type", weight_type)
    return path


PICTURES = ("--quiet", *memtally.PICTURES)


def folder(name):
    return os.path.join(SCRATCH.name, name)


def record_bench(name, weight_type, *arguments):
    """Runs llama-bench for one test under memtally; returns its log and the recording's folder."""
    recording = folder(name)
    command = [engine.llama_cpp("llama-bench"), "-m", model(weight_type), "-p", "0", "-n", "48", "-r", "2",
               "-t", "1", "-v", *arguments]
    done = memtally.must("run", *PICTURES, "-o", recording, "--", *command)
    return done.stdout + done.stderr, recording


def assert_demo_precision(place):
    total = place["total_resident_bytes"]
    assert place["unattributed_bytes"] <= 0.005 * total, (place["unattributed_bytes"], total)
    assert abs(place["picture_skew_bytes"]) <= 0.001 * total, (place["picture_skew_bytes"], total)
    assert place["peak_resident_bytes"] <= 1.01 * total, (place["peak_resident_bytes"], total)


def check_bench(name, weight_type, *arguments):
    log, recording = record_bench(name, weight_type, *arguments)
    place = memtally.host(memtally.report(recording))
    memtally.assert_adds_up(place)
    memtally.assert_recorded_buffers_are_as_logged(recording, log)
    assert_demo_precision(place)
    return place


def test_llama_bench_q8_0_adds_up_and_agrees_with_its_log():
    check_bench("q8_0", "q8_0")


def test_weights_that_the_engine_repacks_are_shown_beside_the_mapped_ones():
    """On a processor with AMX they are in that layout, and CPU_REPACK is not seen; elsewhere AMX is not."""
    copy = {"amx": "AMX", "x86-64": None, "aarch64": None}.get(engine.cpu(), "CPU_REPACK")
    if not copy:
        raise tap.Skip("llama.cpp has no layout of its own for this processor")
    place = check_bench("repack", "q4_0")
    parts = {part["name"]: part for part in memtally.row(place, "weights")["detail"]}
    assert {"CPU_Mapped", copy} <= set(parts), parts
    assert parts[copy]["resident_bytes"] > 0.99 * parts[copy]["allocated_bytes"], parts


def test_f16_weights_are_all_mapped():
    place = check_bench("f16", "f16")
    assert memtally.detail(place, "weights", "CPU_Mapped") > 250 * memtally.MIB


def test_llama_bench_with_quantised_cache_agrees_with_its_log():
    check_bench("kv", "q8_0", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "1")


def test_weights_that_are_read_instead_of_mapped_are_weights_all_the_same():
    place = check_bench("no-mmap", "q8_0", "-lm", "none")
    assert memtally.row(place, "weights")["resident_bytes"] > 130 * memtally.MIB


def test_full_depth_says_the_same_of_the_buffers():
    recording = folder("full")
    done = memtally.must("run", *PICTURES, "--depth", "full", "-o", recording, "--", engine.llama_cpp("llama-bench"),
                         "-m", model(), "-p", "0", "-n", "64", "-r", "1", "-t", "1", "-v")
    place = memtally.host(memtally.report(recording))
    memtally.assert_adds_up(place)
    memtally.assert_recorded_buffers_are_as_logged(recording, done.stdout + done.stderr)
    names = [part["name"] for part in memtally.row(place, "runtime")["detail"]]
    assert "heap blocks" in names, names


def test_the_recorder_changes_neither_output_nor_status():
    command = [engine.llama_cpp("llama-bench"), "-m", "/nonexistent.gguf"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    recorded = memtally.run("run", "--quiet", "-o", folder("missing-model"), "--", *command)
    assert plain.returncode == recorded.returncode != 0
    assert plain.stdout == recorded.stdout


def wait_until_healthy(port, process):
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("llama-server ended early")


def complete(port):
    body = json.dumps({"prompt": "the memory of a model", "n_predict": 128, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert json.load(answer)["tokens_predicted"] == 128


def test_llama_server_answers_under_the_recorder_and_agrees_with_its_log():
    port = ports.free_port()
    recording = folder("server")
    log_path = folder("server.log")
    with open(log_path, "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [memtally.program(), "run", *PICTURES, "-o", recording, "--",
             engine.llama_cpp("llama-server"), "-m", model(), "--port", str(port), "-c", "1024", "-np", "1", "-t", "1",
             "-v", "--no-warmup"], stdout=log, stderr=log)
        try:
            wait_until_healthy(port, server)
            complete(port)
        finally:
            server.send_signal(signal.SIGTERM)
            status = server.wait(timeout=120)
    with open(log_path, encoding="utf-8", errors="replace") as file:
        log = re.sub(r"^\S+ [A-Z] ", "", file.read(), flags=re.M)
    # The server plans first, with a model that has no memory; only what it loads then counts.
    log = log[log.rindex("load_tensors:"):]
    assert status in (0, 128 + signal.SIGTERM), (status, log[-1000:])
    place = memtally.host(memtally.report(recording))
    memtally.assert_adds_up(place)
    memtally.assert_recorded_buffers_are_as_logged(recording, log)
    assert_demo_precision(place)


def weights_so_far(recording):
    """What a report shows of a recording that is being written."""
    done = memtally.run("report", recording, "--json")
    return memtally.row(memtally.host(json.loads(done.stdout)), "weights")["resident_bytes"] if done.returncode == 0 else 0


def test_a_killed_engine_leaves_a_readable_recording():
    recording = folder("killed")
    command = [memtally.program(), "run", "--quiet", "-o", recording, "--", engine.llama_cpp("llama-bench"), "-m", model(),
               "-p", "0", "-n", "4000", "-r", "1", "-t", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as watcher:
        while weights_so_far(recording) <= 100 * memtally.MIB:
            assert watcher.poll() is None, "llama-bench ended early"
            time.sleep(0.2)
        os.kill(memtally.child_of(watcher.pid), signal.SIGKILL)
        assert watcher.wait(timeout=120) == 128 + signal.SIGKILL
    document = memtally.report(recording)
    assert [process["end"] for process in document["processes"]] == ["killed by SIGKILL"]
    memtally.assert_adds_up(memtally.host(document))
    assert memtally.row(memtally.host(document), "weights")["resident_bytes"] > 100 * memtally.MIB


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    tap.main(globals())
