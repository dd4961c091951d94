#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/test counts what a test program says, and what it was about to say when it died."""

import os
import shutil
import subprocess
import tempfile

import tap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MESON = """project('scratch', meson_version: '>=1.0.0')
test('program', find_program('program'), protocol: '{protocol}', suite: 'unit', timeout: {seconds})
"""


def count(body, protocol="tap", seconds=300):
    """The exit status, last line and whole output of scripts/test over one shell script."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/meson.build", "w", encoding="utf-8") as file:
            file.write(MESON.format(protocol=protocol, seconds=seconds))
        with open(f"{folder}/program", "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + body)
        os.chmod(f"{folder}/program", 0o755)
        subprocess.run(["meson", "setup", f"{folder}/b", folder], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(
            [f"{ROOT}/scripts/test", "--build", f"{folder}/b"], capture_output=True, text=True, check=False
        )
    return done.returncode, done.stdout.splitlines()[-1], done.stdout


def test_every_function_of_a_program_counts():
    status, last, _ = count("echo 1..3; echo ok 1 - a; echo ok 2 - b; echo ok 3 - c\n")
    assert (status, last) == (0, "3 passed, 0 failed"), (status, last)


def test_a_failure_is_counted_and_shown_with_its_words():
    status, last, said = count("echo 1..2; echo ok 1 - a; echo not ok 2 - b; echo '# 1 != 2'; exit 1\n")
    assert (status, last) == (1, "1 passed, 1 failed"), (status, last)
    assert "FAILED: " in said and "# 1 != 2" in said.split("FAILED: ")[1], said


def test_a_program_that_dies_in_the_middle_fails():
    status, last, said = count("echo 1..3; echo ok 1 - a; kill -ABRT $$\n")
    assert (status, last) == (1, "1 passed, 1 failed"), (status, last)
    assert "after 1 of 3 tests" in said, said


def test_a_program_that_stops_early_with_success_fails():
    status, last, _ = count("echo 1..3; echo ok 1 - a; exit 0\n")
    assert (status, last) == (1, "1 passed, 1 failed"), (status, last)


def test_a_status_that_no_result_explains_fails():
    status, last, _ = count("echo 1..1; echo ok 1 - a; exit 9\n")
    assert (status, last) == (1, "1 passed, 1 failed"), (status, last)


def test_a_program_that_says_nothing_fails():
    status, last, _ = count("exit 0\n")
    assert (status, last) == (1, "0 passed, 1 failed"), (status, last)


def test_a_program_that_hangs_fails():
    status, last, _ = count("echo 1..2; echo ok 1 - a; exec sleep 300\n", seconds=5)
    assert (status, last) == (1, "1 passed, 1 failed"), (status, last)


def test_what_is_skipped_is_neither_passed_nor_failed():
    status, last, said = count("echo 1..2; echo ok 1 - a; echo 'ok 2 - b # SKIP no kernel for it'\n")
    assert (status, last) == (0, "1 passed, 0 failed"), (status, last)
    assert "no kernel for it" in said, said


def test_nothing_run_is_a_failure():
    status, last, _ = count("echo 1..1; echo 'ok 1 - a # SKIP no'\n")
    assert (status, last) == (1, "0 passed, 0 failed"), (status, last)


def test_a_plain_program_is_one_test():
    assert count("exit 0\n", "exitcode")[:2] == (0, "1 passed, 0 failed")
    assert count("echo why; exit 1\n", "exitcode")[:2] == (1, "0 passed, 1 failed")


def test_a_large_engine_that_is_not_to_be_had_is_skipped_and_says_why():
    """The tests' programs find the last words of scripts/engine in a variable, and the other engines as ever."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/scripts")
        with open(f"{folder}/scripts/engine", "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\n[ "$1" = torch ] || { echo /there; exit; }\n'
                       "echo 'engine: PyTorch is fetched for x86_64 only, not for s390x' >&2; exit 1\n")
        os.chmod(f"{folder}/scripts/engine", 0o755)
        shutil.copy(f"{ROOT}/scripts/test", f"{folder}/scripts/test")
        with open(f"{folder}/meson.build", "w", encoding="utf-8") as file:
            file.write("project('scratch')\ntest('program', find_program('program'), protocol: 'tap', suite: 'engine')\n")
        with open(f"{folder}/program", "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho 1..2; echo "ok 1 - a # SKIP $MEMTALLY_NO_TORCH $MEMTALLY_TORCH"\n'
                       'test "$MEMTALLY_LLAMA_CPP" = /there && echo ok 2 - b\n')
        os.chmod(f"{folder}/program", 0o755)
        subprocess.run(["meson", "setup", f"{folder}/build", folder], check=True, stdout=subprocess.DEVNULL)
        without = {name: value for name, value in os.environ.items() if not name.startswith("MEMTALLY_")}
        done = subprocess.run([f"{folder}/scripts/test"], capture_output=True, text=True, check=False, env=without)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1 passed, 0 failed", done
    assert "a: PyTorch is fetched for x86_64 only, not for s390x" in done.stdout, done.stdout


if __name__ == "__main__":
    tap.main(globals())
