#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally guard on real programs that run into their limit, by a control group or by looking.

    GUARD_TIMES=1000 test_guard.py    forces so many shortages, by chance of a fixed seed

No program is faster or slower than the test expects: each waits where it is, for as long as it takes, until memtally has done
its next step. Nothing that a program wrote may be lost, and none may be killed that had not been asked to end."""

import concurrent.futures
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import tap

MEMTALLY = os.environ["MEMTALLY"]
EATER = os.environ["EATER"]
FOLDER = tempfile.mkdtemp(prefix="memtally-guard-")
LONG = "10m"  # for a step that the program answers
SHORT = "1ms"  # for a step that it does not
STEP = re.compile(r" s  (call|signal|freeze|end|kill) ")


def guard(*arguments):
    return subprocess.run(
        [MEMTALLY, "guard", *arguments], capture_output=True, text=True, timeout=600, check=False
    )


def steps(done):
    return STEP.findall(done.stderr)


class Eater:
    """What a program promised, and whether it was kept."""

    number = 0

    def __init__(self, kind, mib):
        Eater.number += 1
        self.file = os.path.join(FOLDER, f"promised-{Eater.number}")
        self.command = [EATER, kind, str(mib), self.file]

    def lines(self):
        with open(self.file, encoding="ascii") as file:
            return [(line[0], int(line[1:])) for line in file]

    def check(self, last):
        """Each piece was written once and in its order; the last line is that of an orderly end."""
        lines = self.lines()
        taken = [number for letter, number in lines if letter == "t"]
        assert taken == list(range(1, len(taken) + 1)), taken
        if last:
            assert lines[-1][0] == last, lines[-1]
        os.unlink(self.file)
        return lines[-1][1]


@functools.cache
def has_groups():
    told = subprocess.run([MEMTALLY, "doctor", "--json"], stdout=subprocess.PIPE, check=False).stdout
    (cap,) = [check for check in json.loads(told)["checks"] if check["name"] == "host_cap"]
    return cap["state"] == "ok"


def test_a_program_that_gives_memory_back_is_not_ended():
    eater = Eater("gives", 58)
    done = guard("--limit", "64MiB", "--signal", "USR1", "--grace", LONG, "--", *eater.command)
    assert done.returncode == 0, done
    assert steps(done) == ["signal"], done
    assert eater.check("g") > 0


def test_a_program_that_grows_past_its_limit_is_held_until_it_hears():
    if not has_groups():
        raise tap.Skip("no control group can be made here")
    eater = Eater("gives", 1024)
    done = guard("--limit", "64MiB", "--signal", "USR1", "--grace", LONG, "--", *eater.command)
    assert done.returncode == 0, done
    assert steps(done) == ["signal"], done
    assert eater.check("g") < 64, "it was past its limit"


def test_a_program_that_does_not_hear_is_ended_in_order():
    eater = Eater("ends", 256)
    done = guard(
        "--limit", "64MiB", "--signal", "SIGUSR1", "--grace", SHORT, "--end", LONG, "--", *eater.command
    )
    assert done.returncode == 7, done
    assert steps(done) == ["signal", "end"], done
    eater.check("e")


def test_a_deaf_program_is_killed_and_what_it_wrote_stays():
    eater = Eater("deaf", 256)
    done = guard("--limit", "64MiB", "--end", SHORT, "--", *eater.command)
    assert done.returncode == 128 + signal.SIGKILL, done
    assert steps(done)[:2] == ["end", "kill"], done
    assert eater.check(None) > 0


def test_a_program_stands_still_before_it_ends():
    eater = Eater("ends", 256)
    done = guard("--limit", "64MiB", "--freeze", "1ms", "--end", LONG, "--", *eater.command)
    assert done.returncode == 7, done
    assert steps(done) == ["freeze", "end"], done
    eater.check("e")


def test_processes_of_a_program_count_together():
    eater = Eater("forks", 256)
    done = guard("--limit", "64MiB", "--end", LONG, "--", *eater.command)
    assert done.returncode == 7, done
    assert steps(done) == ["end"], done


def test_a_program_within_its_limit_is_left_alone():
    done = guard("--limit", "1GiB", "--", "sh", "-c", "exit 5")
    assert (done.returncode, done.stderr) == (5, ""), done


def test_a_command_is_called_and_knows_whom():
    eater = Eater("gives", 58)
    called = os.path.join(FOLDER, "called")
    command = f"test $MEMTALLY_USED_BYTES -gt 0 && echo $MEMTALLY_PID >{called} && kill -USR1 $MEMTALLY_PID"
    done = guard("--limit", "64MiB", "--call", command, "--grace", LONG, "--", *eater.command)
    assert done.returncode == 0, done
    assert steps(done) == ["call"], done
    with open(called, encoding="ascii") as file:
        assert int(file.read()) > 0
    eater.check("g")


def test_a_command_that_hangs_keeps_nobody():
    eater = Eater("ends", 256)
    held = os.path.join(FOLDER, "held")
    os.mkfifo(held)
    done = guard(
        "--limit", "64MiB", "--call", f"exec 3<>{held}; exec >/dev/null 2>&1; read line <&3",
        "--grace", SHORT, "--end", LONG, "--", *eater.command,
    )  # fmt: skip
    with open(held, "w", encoding="ascii") as fifo:
        fifo.write("go on\n")
    assert done.returncode == 7, done
    assert steps(done) == ["call", "end"], done
    eater.check("e")


def test_a_process_that_runs_is_guarded():
    eater = Eater("ends", 256)
    with subprocess.Popen(eater.command) as running:
        done = guard("--limit", "64MiB", "--end", LONG, "--pid", str(running.pid))
        assert running.wait() == 7
    assert done.returncode == 0, done
    assert steps(done) == ["end"], done
    eater.check("e")


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_who_stands_still_goes_on_when_memtally_is_told_to_end():
    eater = Eater("ends", 256)
    with subprocess.Popen(eater.command) as running:
        words = [MEMTALLY, "guard", "--limit", "64MiB", "--freeze", LONG, "--pid", str(running.pid)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as memtally:
            while state_of(running.pid) != "T":
                time.sleep(0.01)
            memtally.send_signal(signal.SIGTERM)
            said = memtally.communicate(timeout=600)[1]
            assert memtally.returncode == 0 and STEP.findall(said) == ["freeze"], said
        running.terminate()
        assert running.wait(timeout=600) == 7
    eater.check("e")


def test_wrong_usage_says_what_is_right():
    for arguments, said in (
        (["--", "true"], "--limit 2GiB"),
        (["--limit", "1GiB"], "name a program after --"),
        (["--limit", "1GiB", "--pid", "1", "--", "true"], "not both"),
        (["--limit", "1GiB", "--signal", "FOO", "--", "true"], "no signal"),
        (["--limit", "1GiB", "--grace", "soon", "--", "true"], "no time"),
    ):
        done = guard(*arguments)
        assert done.returncode == 2 and said in done.stderr, done
    assert guard("--limit", "1GiB", "--", "/nonexistent").returncode == 127
    assert guard("--limit", "1GiB", "--pid", str(2**22 + 1)).returncode == 125


# kind: (status, last line, the last step)
ENDINGS = {
    "gives": (0, "g", "signal"),
    "ends": (7, "e", "end"),
    "deaf": (128 + signal.SIGKILL, None, "kill"),
    "forks": (7, None, "end"),
}


def force(kind, mib, freezes, by_pid):
    """One shortage. Returns what went otherwise than it must, or None."""
    # Where nothing holds it, a program that is to hear must not be past its limit before.
    eater = Eater(kind, 4 * mib if kind != "gives" or has_groups() else mib * 9 // 10)
    times = {
        "--grace": LONG if kind == "gives" else SHORT,
        "--end": SHORT if kind == "deaf" else LONG,
        # A program that stands still gives nothing back.
        "--freeze": SHORT if freezes and kind != "gives" else "0",
    }
    options = [word for option in times.items() for word in option]
    options += ["--limit", f"{mib}MiB", "--signal", "USR1"]
    if by_pid and kind != "gives":
        with subprocess.Popen(eater.command) as running:
            done = guard(*options, "--pid", str(running.pid))
            status = running.wait()
        status = 128 - status if status < 0 else status
        if done.returncode != 0:
            return f"memtally ended with {done.returncode}: {done.stderr}"
    else:
        done = guard(*options, "--", *eater.command)
        status = done.returncode
    expected, last, step = ENDINGS[kind]
    if status != expected or step not in steps(done):
        os.unlink(eater.file)
        return f"{kind} of {mib} MiB: status {status}, {done.stderr}"
    eater.check(last)
    return None


def test_forced_shortages_lose_nothing():
    chance = random.Random(1818)
    n = int(os.environ.get("GUARD_TIMES", "12"))
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as workers:
        runs = [
            workers.submit(
                force, list(ENDINGS)[i % 4], chance.randrange(32, 96), chance.random() < 0.5, chance.random() < 0.25
            )
            for i in range(n)
        ]
        wrong = [run.result() for run in runs if run.result()]
    tap.comment(f"{n} shortages, {len(wrong)} of them otherwise than they must be")
    assert not wrong, wrong[:3]


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
