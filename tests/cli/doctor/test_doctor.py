#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally doctor as a user sees it: its table, its JSON and its exit status."""

import json
import os
import shutil
import subprocess
import tempfile

import tap

MEMTALLY = os.environ["MEMTALLY"]


def doctor(*arguments, **environment):
    return subprocess.run(
        [MEMTALLY, "doctor", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check_named(document, name):
    (found,) = [check for check in document["checks"] if check["name"] == name]
    return found


def test_json_agrees_with_the_exit_status():
    done = doctor("--json")
    document = json.loads(done.stdout)
    missing = [c["name"] for c in document["checks"] if c["essential"] and c["state"] == "missing"]
    assert document["essentials_work"] == (not missing), missing
    assert done.returncode == (3 if missing else 0), done
    assert all(check["finding"] for check in document["checks"])
    assert {check["state"] for check in document["checks"]} <= {"ok", "limited", "missing"}


def test_the_table_has_a_line_for_each_check_within_80_columns():
    names = [check["name"] for check in json.loads(doctor("--json").stdout)["checks"]]
    lines = doctor().stdout.splitlines()
    assert max(map(len, lines)) <= 80
    starts = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert starts[: len(names)] == names, starts


def test_without_the_recorder_the_answer_is_no_and_says_what_to_do():
    done = doctor("--json", MEMTALLY_RECORDER="/nonexistent/recorder.so")
    preload = check_named(json.loads(done.stdout), "preload")
    assert done.returncode == 3
    assert preload["state"] == "missing"
    assert "/nonexistent/recorder.so" in preload["advice"]


def test_a_recorder_that_does_not_load_is_found_out():
    done = doctor("--json", MEMTALLY_RECORDER="/etc/passwd")
    preload = check_named(json.loads(done.stdout), "preload")
    assert done.returncode == 3
    assert preload["finding"] == "a test program did not load the recorder"


def test_engines_are_looked_for_on_the_path():
    document = json.loads(doctor("--json", PATH="/nonexistent", MEMTALLY_CACHE="/nonexistent").stdout)
    assert check_named(document, "engines")["state"] == "missing"
    assert check_named(document, "preload")["state"] != "ok"


def put_program(path):
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n")
    os.chmod(path, 0o755)


def test_node_alone_is_no_engine():
    with tempfile.TemporaryDirectory() as folder:
        put_program(f"{folder}/bin/node")
        document = json.loads(doctor("--json", PATH=f"{folder}/bin", MEMTALLY_CACHE=folder).stdout)
        assert check_named(document, "engines")["finding"] == "none on PATH"


def test_cached_engines_are_named():
    with tempfile.TemporaryDirectory() as folder:
        machine = os.uname().machine
        put_program(f"{folder}/engines/llama.cpp-1-{machine}-cpu/llama-server")
        put_program(f"{folder}/bin/ollama")
        cached = json.loads(doctor("--json", PATH="/nonexistent", MEMTALLY_CACHE=folder).stdout)
        both = json.loads(doctor("--json", PATH=f"{folder}/bin", MEMTALLY_CACHE=folder).stdout)
        engines = check_named(cached, "engines")
        assert engines["finding"] == "in the cache: llama-server", engines
        assert engines["state"] == "ok" and engines["advice"] is None, engines
        assert check_named(both, "engines")["finding"] == "ollama; in the cache: llama-server", both


def test_without_proc_the_essentials_are_missing():
    if not shutil.which("unshare") or os.geteuid() != 0:
        raise tap.Skip("needs root and unshare")
    script = 'mount -t tmpfs none /proc || exit 99; exec "$0" doctor --json'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, MEMTALLY],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode in (1, 99) and not done.stdout:
        raise tap.Skip("mounting is not permitted")
    assert done.returncode == 3, done
    document = json.loads(done.stdout)
    assert check_named(document, "proc")["advice"] == "mount it with: mount -t proc proc /proc"
    assert check_named(document, "pictures")["state"] == "missing"


# What /sys has of two cards, of AMD and of NVIDIA.
CARDS = """
mount -t tmpfs none /sys/class || exit 99
for card in 0:amdgpu 1:nvidia; do
    mkdir -p /sys/class/drm/card${card%:*}/device
    ln -s ../../../../bus/pci/drivers/${card#*:} /sys/class/drm/card${card%:*}/device/driver
done
"$0" doctor --json >"$1/doctor" || exit 98
"$0" run -q -o "$1/recording" -- true || exit 97
exec "$0" report --json "$1/recording"
"""


def test_a_device_of_amd_is_said_to_be_there_and_unseen():
    if not shutil.which("unshare"):
        raise tap.Skip("needs unshare")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["unshare", "-rm", "sh", "-c", CARDS, MEMTALLY, folder], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode in (1, 99) and not done.stdout:
            raise tap.Skip("mounting is not permitted")
        assert done.returncode == 0, done
        with open(f"{folder}/doctor", encoding="utf-8") as file:
            found = check_named(json.load(file), "drm")
    cards, _, unseen = found["finding"].partition("; ")
    assert sorted(cards.split(", ")) == ["amdgpu (card0)", "nvidia (card1)"], found
    assert unseen == "memtally does not record memory of AMD's and Intel's devices", found
    assert "memtally does not record memory of AMD's and Intel's devices, and here is amdgpu (card0)" in json.loads(done.stdout)["notes"], done.stdout


def test_operands_are_refused():
    assert doctor("now").returncode == 2


if __name__ == "__main__":
    tap.main(globals())
