#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally guard --device-limit on the devices of nvml.c, which are not there: the program says itself what it uses of one, and the
driver tells it on. It ends by what it is sent, never by time. Then on pretended devices, whose driver counts what a program takes.

    GUARD_TIMES=100 test_guard_device.py    forces so many shortages of a pretended device"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap

MEMTALLY = os.environ["MEMTALLY"]
FAKE_NVML = os.environ["FAKE_NVML"]
FOLDER = tempfile.mkdtemp(prefix="memtally-guard-device-")
LONG = "10m"  # for a step that the program answers
SHORT = "1ms"  # for a step that it does not
STEP = re.compile(r" s  (\w+) ")
USES = 'uses() { echo "$$ $1" > $NVML_USER.new; mv $NVML_USER.new $NVML_USER; }\n'
STAY = "while :; do read line < $NVML_USER.never; done"


def guard(script, *options, real_devices=True):
    user = os.path.join(FOLDER, "user")
    if not os.path.exists(f"{user}.never"):
        os.mkfifo(f"{user}.never")
    more = {"LD_LIBRARY_PATH": FAKE_NVML if real_devices else FOLDER}
    done = subprocess.run(
        [MEMTALLY, "guard", *options, "--", "sh", "-c", USES + script],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "NVML_USER": user, **more},
    )  # fmt: skip
    return done, STEP.findall(done.stderr)


def test_a_program_near_its_part_of_a_device_is_asked_for_memory():
    done, steps = guard(
        f"trap 'uses 1000; exit 4' USR1; uses 3900000000; {STAY}",
        "--device-limit", "gpu0=4GiB", "--signal", "USR1", "--grace", LONG,
    )  # fmt: skip
    assert (done.returncode, steps) == (4, ["signal"]), done
    assert "uses 3.63 GiB of 4.00 GiB of gpu0; memtally sends its signal" in done.stderr, done  # 3,900,000,000 / 2^30


def test_who_is_past_its_part_is_ended_in_order():
    done, steps = guard(f"trap '' USR1; trap 'exit 7' TERM; uses 5000000000; {STAY}",
                        "--device-limit", "gpu0=4GiB", "--limit", "1GiB", "--signal", "USR1", "--end", LONG)  # fmt: skip
    assert (done.returncode, steps) == (7, ["signal", "end"]), done


def test_who_is_deaf_is_killed():
    done, steps = guard(f"trap '' TERM; uses 5000000000; {STAY}", "--device-limit", "gpu0=4GiB", "--end", SHORT)
    assert done.returncode == 137 and steps[:2] == ["end", "kill"], done


def test_another_device_and_less_are_left_alone():
    done, steps = guard("uses 3000000000; exit 5", "--device-limit", "gpu0=4GiB,gpu1=1GiB")
    assert (done.returncode, steps, done.stderr) == (5, [], ""), done


def test_a_device_that_nobody_tells_of_is_refused():
    done, _ = guard("exit 5", "--device-limit", "gpu7=1GiB")
    assert done.returncode == 125 and "device 7" in done.stderr, done
    if any(os.path.exists(f"/dev/nvidia{end}") for end in ("ctl", "0")):
        raise tap.Skip("a driver is here, so that its absence was not tried")
    done, _ = guard("exit 5", "--device-limit", "gpu0=1GiB", real_devices=False)
    assert done.returncode == 125 and "no NVIDIA driver" in done.stderr, done


def test_wrong_limits_say_what_is_right():
    for text, said in (("host=1GiB", "--limit"), ("gpu=1GiB", "gpu0=SIZE"), ("gpu0", "PLACE=SIZE")):
        done, _ = guard("exit 5", "--device-limit", text)
        assert done.returncode == 2 and said in done.stderr, done
    done = subprocess.run([MEMTALLY, "guard", "--device-limit", "gpu0=1GiB", "--pid", str(os.getpid())],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 2 and "that guard starts" in done.stderr, done


# kind: (status, last line, a step that it had). One that grew fast between two looks has two steps at once.
ENDINGS = {"gives": (0, "g", "signal"), "ends": (7, "e", "end"), "deaf": (137, "t", "kill")}


def force(kind):
    """One shortage of the device that is there for this process. Returns what went otherwise than it must, or None."""
    path = os.path.join(FOLDER, f"promised-{kind}")
    times = ["--grace", LONG if kind == "gives" else SHORT, "--end", SHORT if kind == "deaf" else LONG]
    eater = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "eats_device.py"), kind, path]
    done = subprocess.run([MEMTALLY, "guard", "--device-limit", "gpu0=1180MiB", "--signal", "USR1", *times, "--", *eater],
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    with open(path, encoding="ascii") as file:
        lines = [(line[0], int(line[1:])) for line in file]
    os.unlink(path)
    status, last, step = ENDINGS[kind]
    taken = [number for letter, number in lines if letter == "t"]
    steps = STEP.findall(done.stderr)
    as_it_must = taken == list(range(1, len(taken) + 1)) and taken and lines[-1] == (last, len(taken))
    return None if as_it_must and done.returncode == status and step in steps else (kind, done, lines[-3:])


def force_many(n):
    """In a process for which the device is there."""
    wrong = [found for found in (force(list(ENDINGS)[i % 3]) for i in range(n)) if found]
    print(f"{n} shortages, {len(wrong)} of them otherwise than they must be", *wrong[:3])


def test_nothing_promised_is_lost_where_a_pretended_device_runs_short():
    n = int(os.environ.get("GUARD_TIMES", "3"))
    words = [MEMTALLY, "exec", "--quiet", "--budget", f"{FOLDER}/budget", "--on", "24GiB", "--need", "gpu0=20GiB", "--"]
    done = subprocess.run([*words, sys.executable, __file__, "force", str(n)],
                          capture_output=True, text=True, timeout=60 + 60 * n, check=False)  # fmt: skip
    tap.comment(done.stdout.strip())
    assert done.stdout == f"{n} shortages, 0 of them otherwise than they must be\n", done


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["force"]:
            force_many(int(sys.argv[2]))
        else:
            tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
