#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally and containers of a real containerd, which has no socket that memtally asks: they are found by their control groups."""

import json
import os
import subprocess
import tempfile

import container_engines
import tap

MEMTALLY = os.environ["MEMTALLY"]
SERVED = os.environ["SERVED"]
MIB = 1 << 20
SECRET = "swordfish"
IDENTITY = "0123456789abcdef" * 4
FILES = {path: path for path in container_engines.libraries_of(SERVED)} | {"/app/llama-server": SERVED, "/models/model.gguf": b"GGUF" + bytes(16 * MIB)}
COMMAND = "/app/llama-server", "-m", "/models/model.gguf", "--port", "18899"
ENGINE = None


def engine():
    global ENGINE  # pylint: disable=global-statement
    if not ENGINE:
        ENGINE = container_engines.Containerd()
    return ENGINE


def memtally(*words, **settings):
    return subprocess.run([MEMTALLY, *words], capture_output=True, text=True, timeout=120, check=False, **settings)


def state(pid):
    return container_engines.files_of(f"/proc/{pid}/root/."), container_engines.same_namespace(pid), container_engines.environment_of(pid)


def resident(pid):
    """The model's pages are touched before its server listens."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def check(pid, expected_engine):
    container_engines.patiently("the model is not there", lambda: resident(pid) >= 40 * MIB)
    before = state(pid)
    done = memtally("attach", "--container", IDENTITY[:12], "--json")
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, done
    document = json.loads(done.stdout)
    assert document["container"]["id"] == IDENTITY and document["container"]["container_engine"] == expected_engine, document["container"]
    assert {one["pid"] for one in document["processes"]} == container_engines.same_namespace(pid), document["processes"]
    [place] = [place for place in document["places"] if place["place"] == "host"]
    rows = {row["category"]: row["resident_bytes"] or 0 for row in place["rows"]}
    assert sum(rows.values()) + place["unattributed_bytes"] == place["total_resident_bytes"] and rows["weights"] >= 16 * MIB, place
    with tempfile.TemporaryDirectory() as folder:
        done = memtally("profile", "--container", IDENTITY[:12], "--prompt", "hello", cwd=folder)
        assert done.returncode == 3 and f"attach --container {IDENTITY[:12]}" in done.stderr and not os.listdir(folder), done
    assert state(pid) == before


def test_a_container_is_found_by_its_control_group_and_left_as_it_was():
    for group, name in (None, "containerd"), (f"/kubepods/besteffort/pod1/cri-containerd-{IDENTITY}.scope", "containerd"):
        options = ("--env", f"HF_TOKEN=hf_{SECRET}", *(("--cgroup", group) if group else ()))
        pid = engine().run(IDENTITY, FILES, *COMMAND, options=options)
        try:
            check(pid, name)
        finally:
            engine().remove(IDENTITY)


def test_a_container_that_ended_is_not_found():
    engine().run(IDENTITY, FILES, *COMMAND)
    engine().remove(IDENTITY)
    done = memtally("attach", "--container", IDENTITY[:12])
    assert done.returncode == 2 and "no running container" in done.stderr, done


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        if ENGINE:
            ENGINE.close()
