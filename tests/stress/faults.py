#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The n-th allocation and the n-th system call fail, for every n until none fails any more, in the recorder, the reader and the
command: nothing crashes, no answer is wrong, errors say what is wrong, and a watched program's output and status stay its own.

faults.py MEMTALLY BUILD [STRIDE [TEST...]]: with a stride only every so many-th n."""

import difflib
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap  # pylint: disable=wrong-import-position

MEMTALLY = os.path.abspath(sys.argv[1])
BUILD = os.path.abspath(sys.argv[2])
STRIDE = int(sys.argv[3]) if len(sys.argv) > 3 else 1
WORKER = os.path.join(BUILD, "worker")
FOLDER = tempfile.TemporaryDirectory(prefix="memtally-faults-")  # pylint: disable=consider-using-with
RECORDING = os.path.join(FOLDER.name, "recording")
COUNT = os.path.join(FOLDER.name, "count")
REPORTS = [["report", RECORDING], ["report", "--json", RECORDING], ["report", "--format", "folded", RECORDING],
           ["report", "--top", "3", RECORDING], ["compare", RECORDING, RECORDING]]


def run(words, **environment):
    try:
        return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=120, check=False,
                              env={**os.environ, "LC_ALL": "C", **environment})
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 999, "", "it did not end within two minutes")


def failing_alloc(n, words, name="memtally"):
    """Runs the words with their n-th allocation failing; returns how they ended and how many there were."""
    if os.path.exists(COUNT):
        os.remove(COUNT)
    done = run(words, LD_PRELOAD=os.path.join(BUILD, "fail_alloc.so"), FAIL_ALLOC=str(n), FAIL_ALLOC_IN=name,
               FAIL_ALLOC_COUNT=COUNT)
    return done, count_of_calls()


def failing_call(n, where, words):
    if os.path.exists(COUNT):
        os.remove(COUNT)
    done = run([os.path.join(BUILD, "fail_call"), str(n), where, COUNT, *words])
    if done.returncode == 77:
        raise tap.Skip("processes cannot be traced here")
    return done, count_of_calls()


def count_of_calls():
    if not os.path.exists(COUNT):
        return None
    with open(COUNT, encoding="ascii") as file:
        return int(file.read().split()[0])


def is_ended_by_loader(done):
    """glibc's loader ends a process so, with no destructor, where its table of unique symbols cannot grow in a dlopen."""
    return done.returncode == 127 and done.stderr == "out of memory\n"


def sweep(fail, check, stride=STRIDE):
    """Fails each call in turn until there is none left to fail."""
    n, wrong, tried = 1, [], 0
    while True:
        done, count = fail(n)
        tried += 1
        problem = check(done)
        if problem:
            wrong.append(f"n = {n}: {problem}; it printed: {(done.stderr or done.stdout)[:300]}")
        if (count is not None and count < n) or len(wrong) > 20:
            break
        if count is None and done.returncode < 128 and not problem and not is_ended_by_loader(done):
            wrong.append(f"n = {n}: no count was left")
            break
        n += stride
    tap.comment(f"{tried} tried, up to n = {n}")
    assert not wrong, "\n".join(wrong)


def figures_of(text):
    """What does not change where a program's file cannot be read: its functions are then told by module and offset, and
    two of one name are two."""
    folded = re.findall(r" ([0-9]+)$", text, re.M)
    return re.split(r"^Largest by call stack", text, flags=re.M)[0] if "%" in text else sum(map(int, folded))


def difference(expected, got):
    """The first lines that differ."""
    lines = difflib.unified_diff(expected.splitlines(), got.splitlines(), lineterm="", n=0)
    return "; ".join(list(lines)[2:8])


def right_or_refused(expected, has_names):
    """What a command prints without a failure, or an error that says so."""
    def check(done):
        says_damage = r'could not be read|could not\s+read|that can be\s+read|"files_unreadable": [1-9]'
        if done.returncode == 0 and re.search(says_damage, done.stdout + done.stderr):
            return None  # of the rest, and says so
        if done.returncode == 0:
            same = done.stdout == expected or (has_names and figures_of(done.stdout) == figures_of(expected))
            return None if same else "another answer: " + difference(expected, done.stdout)
        if is_ended_by_loader(done):
            return None
        if done.returncode not in (1, 2, 3):
            return f"status {done.returncode}"
        return None if done.stderr.strip() or '"error"' in done.stdout else "no word of error"
    return check


def a_recording():
    if not os.path.exists(RECORDING):
        done = run([MEMTALLY, "run", "-q", "--depth", "full", "-o", RECORDING, "--", WORKER])
        assert done.returncode == 7, done.stderr


def of_reports(fail):
    a_recording()
    for words in REPORTS:
        tap.comment(" ".join(words[:-1]))
        expected = run([MEMTALLY, *words])
        assert expected.returncode == 0, expected.stderr
        sweep(lambda n, words=words: fail(n, [MEMTALLY, *words]), right_or_refused(expected.stdout, "folded" in words or "--top" in words))


def test_whichever_allocation_fails_reports_are_right_or_refused():
    of_reports(failing_alloc)


def test_whichever_system_call_fails_reports_are_right_or_refused():
    of_reports(lambda n, words: failing_call(n, "command", words))


def fresh():
    return os.path.join(tempfile.mkdtemp(dir=FOLDER.name), "recording")


def the_programs_own(done):
    """The watched program ends as it does by itself."""
    if done.returncode != 7:
        return f"status {done.returncode}"
    return None if done.stdout == PLAIN.stdout else f"its output is {done.stdout!r}"


def or_not_begun(done):
    if done.returncode in (1, 2, 3, 125, 126, 127) and not done.stdout and done.stderr.strip():
        return None
    return the_programs_own(done)


def recorded(fail, check, stride=STRIDE):
    """Fails calls of `memtally run`, and asks for a report of what it left."""
    def both(done_and_folder):
        done, folder = done_and_folder
        problem = check(done)
        if problem or not os.path.isdir(folder):
            return problem
        report = run([MEMTALLY, "report", folder])
        if report.returncode not in (0, 1, 2, 3) or (report.returncode and not report.stderr.strip()):
            return f"the report ended with {report.returncode}"
        return None

    class Done:  # what sweep() prints of
        pass

    def once(n):
        folder = fresh()
        done, count = fail(n, [MEMTALLY, "run", "-q", "--depth", "full", "-o", folder, "--", WORKER])
        made = Done()
        made.pair, made.stdout, made.stderr, made.returncode = (done, folder), done.stdout, done.stderr, done.returncode
        return made, count
    sweep(once, lambda made: both(made.pair), stride)


def test_whichever_system_call_of_the_recorder_fails_the_program_stays_as_it_is():
    recorded(lambda n, words: failing_call(n, "recorder", words), the_programs_own, STRIDE // 10 or 1)


def test_whichever_system_call_of_the_watcher_fails_the_program_stays_as_it_is_or_never_begins():
    recorded(lambda n, words: failing_call(n, "command", words), or_not_begun)


def test_whichever_allocation_of_the_watcher_fails_the_program_stays_as_it_is_or_never_begins():
    recorded(failing_alloc, or_not_begun)


# A program that shares the machine, by each command that holds it.
OWN = ["sh", "-c", "echo its own; exit 7"]
HELD = {
    "exec": ["exec", "--need", "host=512MiB", "--", *OWN],
    "guard": ["guard", "--limit", "1GiB", "--signal", "USR1", "--freeze", "1s", "--", *OWN],
}


def held_or_not_begun(done):
    if done.returncode == 7:
        return None if done.stdout == "its own\n" else f"its output is {done.stdout!r}"
    if done.returncode in (1, 2, 3, 125, 126, 127) and not done.stdout and done.stderr.strip():
        return None
    return f"status {done.returncode}"


def of_held(fail):
    for name, words in HELD.items():
        tap.comment(name)
        state = tempfile.mkdtemp(dir=FOLDER.name)
        os.environ["XDG_STATE_HOME"] = state
        sweep(lambda n, words=words: fail(n, [MEMTALLY, *words]), held_or_not_begun)
        whole = run([MEMTALLY, *words])
        assert (whole.returncode, whole.stdout) == (7, "its own\n"), whole


def test_whichever_system_call_fails_a_held_program_is_itself_or_never_begins():
    of_held(lambda n, words: failing_call(n, "command", words))


def test_whichever_allocation_fails_a_held_program_is_itself_or_never_begins():
    of_held(failing_alloc)


def lines_of_tests(done):
    return sorted(line.split(" - ", 1)[1] for line in done.stdout.splitlines() if " - " in line and line.startswith(("ok", "not ok")))


def of_tests(fail):
    """memtally test: each test that is told has the outcome that it has without a failure, or memtally says what failed."""
    manifest = os.path.join(FOLDER.name, "tests.toml")
    with open(manifest, "w", encoding="ascii") as file:
        for name, status in (("passes", 0), ("fails", 3)):
            file.write(f'[[test]]\nname = "{name}"\ncommand = ["sh", "-c", "exit {status}"]\nneed = "host=64MiB"\n')
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(dir=FOLDER.name)
    words = [MEMTALLY, "test", manifest]
    expected = run(words)
    assert lines_of_tests(expected) == ["fails", "passes"] and expected.returncode == 1, expected

    def check(done):
        if done.returncode == 1 and done.stdout.count("\nok ") + done.stdout.count("\nnot ok ") == 2:
            return None if re.search("^ok [0-9]+ - fails", done.stdout, re.M) is None else "a test that fails passed"
        return None if done.returncode in (1, 2, 3, 125) and done.stderr.strip() else f"status {done.returncode}"
    sweep(lambda n: fail(n, words), check)


def test_whichever_system_call_fails_no_failing_test_passes():
    of_tests(lambda n, words: failing_call(n, "command", words))


def test_whichever_allocation_fails_no_failing_test_passes():
    of_tests(failing_alloc)


PLAIN = run([WORKER])

if __name__ == "__main__":
    sys.argv[1:] = sys.argv[4:]
    tap.main(globals())
