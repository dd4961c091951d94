#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where the account of a rehearsal has no room on its disk nothing is rehearsed, and that is said."""

import os
import subprocess
import tempfile

import tap


def on_a_disk_of(size, folder):
    """What `rehearse` does with its folder on a file system of `size`, in a mount namespace of its own."""
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size="$0" none "$1" && shift && exec "$@"', size, folder]
    try:
        can = subprocess.run([*mount, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError as missing:
        raise tap.Skip("there is no unshare(1) here") from missing
    if not can:
        raise tap.Skip("no file system may be mounted here, in no namespace either")
    return subprocess.run([*mount, os.environ["MEMTALLY"], "rehearse", "--quiet", "--folder", folder, "--", "true"],
                          capture_output=True, text=True, check=False, timeout=60)


def test_an_account_without_room_is_exit_3_and_names_its_file():
    with tempfile.TemporaryDirectory() as folder:
        done = on_a_disk_of("256k", folder)
    assert done.returncode == 3, done
    assert done.stderr == f"memtally: cannot write {folder}/account: No space left on device\n", done.stderr
    assert done.stdout == "", done.stdout


def test_with_room_the_same_command_comes_to_its_answer():
    """The answer is that true(1) is not built on ggml."""
    with tempfile.TemporaryDirectory() as folder:
        done = on_a_disk_of("256m", folder)
    assert "no process of true loaded ggml" in done.stderr, done


if __name__ == "__main__":
    tap.main(globals())
