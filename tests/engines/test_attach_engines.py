#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally attach on a llama-server that is recorded at the same time: two observers of one process, from outside and from inside."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import engine
import memtally
import tap

SHAPE = "--layers 8 --embedding-length 512 --ff-length 2048 --heads 8 --vocabulary 8192".split()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


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
    port = free_port()
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
    assert sum(row["resident_bytes"] for row in place["rows"]) + place["unattributed_bytes"] == place["total_resident_bytes"]
    assert abs(place["total_resident_bytes"] - rss) <= 0.01 * rss, (place["total_resident_bytes"], rss)
    assert document["engine"]["name"] == "llama.cpp" and document["model"]["path"] == model, document["model"]
    assert (document["settings"]["context_tokens"], document["settings"]["sequences"]) == (512, 2), document["settings"]
    assert any(f"port {port}" in note for note in document["notes"]), document["notes"]


def test_what_no_mapping_tells_is_not_called_weights():
    with tempfile.TemporaryDirectory() as folder:
        with recorded_server(folder, "--load-mode", "none") as (_, pid, _):
            document = attached(pid)
        inside = memtally.row(memtally.host(memtally.report(os.path.join(folder, "rec"), "steady")), "weights")
    assert inside["resident_bytes"] > 20 * memtally.MIB, inside
    assert memtally.row(memtally.host(document), "weights")["resident_bytes"] == 0, document


if __name__ == "__main__":
    tap.main(globals())
