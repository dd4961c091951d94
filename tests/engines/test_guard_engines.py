#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally guard --empty-slots on the real llama-server: what the server kept of requests is gone, and it goes on serving."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import engine
import memtally
import ports
import tap

# A sliding window, so that the server keeps checkpoints of a context beside its cells.
SHAPE = ("--architecture gemma3 --layers 12 --embedding-length 64 --ff-length 64 --heads 8 --head-size 128 --vocabulary 1024 "
         "--context-length 4096 --sliding-window 256").split()  # fmt: skip
TOKENS = 800


def ask(port, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def wait_until_ready(port, process):
    while process.poll() is None:
        with contextlib.suppress(OSError, urllib.error.URLError):
            if ask(port, "/health")["status"] == "ok":
                return
        time.sleep(0.1)
    raise AssertionError("llama-server ended before it was ready")


@contextlib.contextmanager
def running_server(folder, *flags):
    model = os.path.join(folder, "model.gguf")
    if not os.path.exists(model):
        memtally.must("sample-model", "custom", model, "--quiet", *SHAPE)
    port = ports.free_port()
    command = [engine.llama_cpp("llama-server"), "-m", model, "--port", str(port), "-c", "4096", "-t", "1", "-tb", "1", "-np", "2", "-ub", "256",
               "-b", "256", *flags]  # fmt: skip
    # glibc gives back what it maps, and keeps what it has in its heaps.
    environment = dict(os.environ, MALLOC_MMAP_THRESHOLD_="1000000")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            wait_until_ready(port, process)
            yield process, port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(120)


def complete(port, slot):
    """Tokens of the prompt that the server had to compute."""
    prompt = [1 + (7 * i + slot) % 1000 for i in range(TOKENS)]
    said = ask(port, "/completion", {"prompt": prompt, "n_predict": 1, "id_slot": slot, "cache_prompt": True})
    return said["timings"]["prompt_n"]


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def guarded(pid):
    """A guard from whose limit the process is less than a tenth away. It gives the server as long as it takes."""
    limit = int(resident_bytes(pid) / 0.9)
    command = [memtally.program(), "guard", "--limit", str(limit), "--empty-slots", "--grace", "10m", "--pid", str(pid)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as guard:
        first = guard.stderr.readline()
        assert "asks its server to empty slots" in first, first
        yield guard


def kept_tokens(port):
    return [slot.get("n_prompt_tokens", 0) for slot in ask(port, "/slots")]


def test_slots_are_emptied_and_memory_comes_back():
    with tempfile.TemporaryDirectory() as folder:
        with running_server(folder, "--slot-save-path", folder) as (server, port):
            for slot in range(2):
                assert complete(port, slot) == TOKENS
            assert min(kept_tokens(port)) >= TOKENS
            before = resident_bytes(server.pid)
            with guarded(server.pid) as guard:
                while any(kept_tokens(port)):
                    assert guard.poll() is None and server.poll() is None
                    time.sleep(0.05)
                freed = before - resident_bytes(server.pid)
                assert complete(port, 0) == TOKENS, "something was kept"
                server.send_signal(signal.SIGINT)
                said = guard.stderr.read()
                assert guard.wait(120) == 0, said
    assert re.search("emptied [12] slots? of", said), said
    tap.comment(f"{before / memtally.MIB:.1f} MiB before, {freed / memtally.MIB:.1f} MiB given back")
    # A checkpoint has the keys and values of a window of 256 tokens in ten layers of twelve: 10 MiB, two in each slot.
    assert freed > 20 * memtally.MIB, said


def test_a_server_that_may_not_is_said():
    with tempfile.TemporaryDirectory() as folder:
        with running_server(folder) as (server, port):
            complete(port, 0)
            with guarded(server.pid) as guard:
                said = guard.stderr.readline()
                server.send_signal(signal.SIGINT)
                assert guard.wait(120) == 0, guard.stderr.read()
    assert "refused with status 501" in said and "--slot-save-path" in said, said


if __name__ == "__main__":
    tap.main(globals())
