#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/setup asks dpkg once and calls apt only for what is missing."""

import os
import subprocess
import tempfile

import tap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

DPKG_QUERY = """#!/bin/sh
echo dpkg-query >>"$CALLS"
for package; do
    case $package in
    -* | $MISSING) ;;
    *) echo "installed $package" ;;
    esac
done
"""
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$CALLS"
[ -z "$BREAK" ] || { echo "E: no network"; exit 100; }
"""
ID = "#!/bin/sh\necho $USER_ID\n"


def setup(*arguments, missing="-", user=0, broken=""):
    """What scripts/setup did: its status, its words, and the programs that it called."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/bin")
        for name, text in (("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET), ("id", ID)):
            with open(f"{folder}/bin/{name}", "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(f"{folder}/bin/{name}", 0o755)
        # No sudo: only the programs that the script itself needs.
        for name in ("sed", "sort", "tr", "mktemp", "rm", "cat", "env", "tail", "sh"):
            where = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True)
            os.symlink(where.stdout.strip(), f"{folder}/bin/{name}")
        calls = f"{folder}/calls"
        done = subprocess.run(
            ["/bin/sh", f"{ROOT}/scripts/setup", *arguments],
            env={"PATH": f"{folder}/bin", "CALLS": calls, "MISSING": missing, "USER_ID": str(user), "BREAK": broken},
            capture_output=True,
            text=True,
            check=False,
        )
        called = ""
        if os.path.exists(calls):
            with open(calls, encoding="utf-8") as file:
                called = file.read()
        return done.returncode, done.stdout + done.stderr, called


def test_nothing_missing_means_one_question_and_silence():
    assert setup("--for", "test") == (0, "", "dpkg-query\n")


def test_only_what_is_missing_is_installed():
    status, said, called = setup("--for", "test", missing="scdoc")
    assert status == 0 and "Installing 1 packages: scdoc" in said, said
    assert called.splitlines()[-1].endswith(" scdoc") and "apt-get update" in called, called


def test_without_root_and_sudo_it_says_what_to_run():
    status, said, called = setup(missing="scdoc", user=1000)
    assert status == 1 and "apt-get install --no-install-recommends scdoc" in said, said
    assert "apt-get" not in called, called


def test_a_failing_apt_is_quoted():
    status, said, _ = setup(missing="scdoc", broken="yes")
    assert status == 1 and "E: no network" in said, said


def test_an_unknown_purpose_is_refused():
    status, said, _ = setup("--for", "fun")
    assert status == 2 and "unknown purpose 'fun'" in said, said


if __name__ == "__main__":
    tap.main(globals())
