#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""llama.cpp with its weights in a pool of ours: ggml loads the plug-in, and --override-tensor asks for its buffer type."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

import engine
import memtally
import ports
import tap

SCRATCH = tempfile.TemporaryDirectory()
MODEL = os.path.join(SCRATCH.name, "model.gguf")
LIBRARY = os.path.join(os.environ["BUILD_DIR"], "src", "pool", "plugin", "libmemtally-pool.so")
POOLED = dict(os.environ, GGML_BACKEND_PATH=LIBRARY)
ALL = ("--override-tensor", ".*=memtally-pool")


def model():
    if not os.path.exists(MODEL):
        memtally.must("sample-model", "smollm-135m", MODEL, "--random", "--type", "q8_0")
    return MODEL


def test_the_recorder_has_the_weights_that_lie_in_the_pool():
    recording = os.path.join(SCRATCH.name, "recording")
    done = memtally.must("run", "-q", *memtally.PICTURES, "-o", recording, "--", engine.llama_cpp("llama-bench"), "-m", model(),
                         "-p", "0", "-n", "4", "-r", "1", "-t", "1", "-v", "-lm", "none", *ALL, env=POOLED)
    (said,) = re.findall(r"memtally-pool model buffer size = +([\d.]+) MiB", done.stdout + done.stderr)
    place = memtally.host(memtally.report(recording))
    memtally.assert_adds_up(place)
    held = memtally.detail(place, "weights", "memtally-pool")
    assert abs(held / memtally.MIB - float(said)) < 0.01, (held, said)


def tokens(*flags, env):
    """What a server answers, by the greatest of each token's chances."""
    port = ports.free_port()
    command = [engine.llama_cpp("llama-server"), "-m", model(), "--port", str(port), "-c", "512", "-np", "1", "-t", "1", "--no-warmup", *flags]
    body = json.dumps({"prompt": "the memory of a model", "n_predict": 24, "temperature": 0, "ignore_eos": True, "return_tokens": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body, {"Content-Type": "application/json"})
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as server:
        try:
            for _ in range(1200):
                assert server.poll() is None, "llama-server ended early"
                try:
                    with urllib.request.urlopen(request, timeout=120) as answer:
                        return json.load(answer)["tokens"]
                except OSError:  # it does not listen yet, or still loads
                    time.sleep(0.1)
            raise AssertionError("llama-server did not answer")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)


def test_a_server_answers_from_the_pool_as_without_it():
    without = tokens(env=os.environ)
    assert len(without) == 24, without
    assert tokens(*ALL, env=POOLED) == without


def test_a_pool_without_room_is_refused_and_said_by_the_engine():
    done = subprocess.run([engine.llama_cpp("llama-bench"), "-m", model(), "-p", "0", "-n", "4", "-r", "1", "-v", "-lm", "none", *ALL],
                          capture_output=True, text=True, check=False, env=dict(POOLED, MEMTALLY_POOL_MAX="64MiB"))
    assert done.returncode != 0
    assert "unable to allocate memtally-pool buffer" in done.stderr, done.stderr[-2000:]


if __name__ == "__main__":
    tap.main(globals())
