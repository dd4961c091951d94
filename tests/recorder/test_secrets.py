#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Secrets in the command line of a recorded program are neither written nor shown."""

import json
import os
import subprocess
import sys
import tempfile

import tap

MEMTALLY = os.environ["MEMTALLY"]
SECRET = "swordfish"
ARGUMENTS = ["--api-key", SECRET, f"--hf-token={SECRET}", f"https://me:{SECRET}@host/path", f"Authorization: Bearer {SECRET}"]
HIDDEN = ["--api-key [hidden]", "--hf-token=[hidden]", "https://[hidden]@host/path"]
FORMATS = ["table", "json", "csv", "folded", "speedscope", "perfetto"]

# Looks for the secret where its own recording is being written, before anything is compressed. Its child does, too.
LOOKS = """
import os, subprocess, sys

def written(path):
    fd = os.open(path, os.O_RDONLY)
    end, at, parts = os.fstat(fd).st_size, 0, []
    while at < end:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError: # nothing but a hole is left
            break
        at = os.lseek(fd, start, os.SEEK_HOLE)
        parts.append(os.pread(fd, at - start, start))
    return b"".join(parts)

folder, secret = sys.argv[1], sys.argv[3]
held = b"".join(written(os.path.join(folder, name)) for name in os.listdir(folder))
assert b"--api-key" in held, "its command line is not recorded at all"
assert secret.encode() not in held, "the secret is recorded"
if "again" not in sys.argv:
    subprocess.run([sys.executable, "-c", os.environ["LOOKS"], *sys.argv[1:], "again"], check=True)
"""


def recorded(folder, *arguments):
    command = [sys.executable, "-c", LOOKS, folder, *arguments]
    return subprocess.run(
        [MEMTALLY, "run", "--no-python", "-o", folder, "--", *command],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "LOOKS": LOOKS},
    )


def test_secrets_are_neither_written_nor_shown():
    with tempfile.TemporaryDirectory(prefix="memtally-secrets-") as top:
        folder = os.path.join(top, "recording")
        done = recorded(folder, *ARGUMENTS)
        assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, done
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                assert SECRET.encode() not in file.read(), name
        for format_name in FORMATS:
            done = subprocess.run([MEMTALLY, "report", "--format", format_name, folder], capture_output=True, check=True)
            assert done.stdout and SECRET.encode() not in done.stdout + done.stderr, format_name
        done = subprocess.run([MEMTALLY, "report", "--json", folder], capture_output=True, text=True, check=True)
        processes = json.loads(done.stdout)["processes"]
        assert len(processes) == 2, processes
        for process in processes:
            assert all(text in process["command"] for text in HIDDEN), process["command"]


def test_an_argument_that_is_cut_is_left_out():
    with tempfile.TemporaryDirectory(prefix="memtally-secrets-") as top:
        folder = os.path.join(top, "recording")
        done = recorded(folder, "--api-key", SECRET, "x" * 23000, f"https://me:{SECRET}" + "y" * 9000 + "@host/")
        assert done.returncode == 0, done
        command = json.loads(
            subprocess.run([MEMTALLY, "report", "--json", folder], capture_output=True, text=True, check=True).stdout
        )["processes"][0]["command"]
        assert "--api-key [hidden]" in command and SECRET not in command, command


if __name__ == "__main__":
    tap.main(globals())
