#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memtally test as a user sees it: outcomes, retries, leaks, room, lists of others, resume."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import tap

MEMTALLY = os.environ["MEMTALLY"]
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.mkdtemp(prefix="memtally-test-")
TAKES = "x = bytearray(b'x') * ({} << 20)"


def environment():
    return {**os.environ, "XDG_STATE_HOME": FOLDER, "FOLDER": FOLDER, "PYTHON": sys.executable}


def run(manifest, *arguments):
    return subprocess.run(
        [MEMTALLY, "test", *arguments, manifest],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def write(name, text):
    path = f"{FOLDER}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def entry(name, command, **more):
    """A [[test]] in TOML; JSON's texts and arrays are TOML's, too."""
    lines = [f"[[test]]\nname = {json.dumps(name)}\ncommand = {json.dumps(command)}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    return "\n".join(lines) + "\n"


def python(mib):
    return [sys.executable, "-c", TAKES.format(mib)]


def results(done):
    """{name: (is it ok, outcome or what is said of a skip, what stands in its block)}"""
    found, block = {}, None
    assert done.stdout.startswith("TAP version 14\n1.."), done
    for line in done.stdout.splitlines():
        if line.startswith(("ok ", "not ok ")):
            name, _, skip = line.split(" - ", 1)[1].partition(" # SKIP ")
            block = {}
            found[name] = [line.startswith("ok"), skip, block]
        elif line.startswith("  ") and ": " in line:
            key, value = line.strip().split(": ", 1)
            block[key] = value
            if key == "outcome":
                found[name][1] = value
    return found


def outcomes(done):
    return {name: result[:2] for name, result in results(done).items()}


def test_what_came_of_each_is_told():
    manifest = write(
        "each.toml",
        entry("fine", "echo hello")
        + entry("fails", "echo broken; exit 3")
        + entry("dies", "kill -SEGV $$")
        + entry("meant", "exit 1", should_fail=True)
        + entry("not so meant", "exit 0", should_fail=True)
        + entry("skips", "exit 77", skip_status=77)
        + entry("says", "echo RuntimeError: CUDA out of memory; exit 1")
        + entry("hangs", "trap '' TERM; while :; do sleep 600; done", timeout=1)
        + entry("never", "true", need="host=100000GiB")
        + entry("missing", ["memtally-has-no-such-program"])
        + "[[test]]\nname = \"where\"\nenvironment = { A = \"b c\" }\ndirectory = \"/\"\n"
        + "command = 'test \"$A\" = \"b c\" && test \"$PWD\" = /'\n",
    )
    junit = f"{FOLDER}/each.xml"
    done = run(manifest, "--junit", junit)
    assert done.returncode == 1
    assert outcomes(done) == {
        "fine": [True, "passed"],
        "fails": [False, "failed"],
        "dies": [False, "failed"],
        "meant": [True, "passed"],
        "not so meant": [False, "failed"],
        "skips": [True, "it says that it cannot run here"],
        "says": [False, "failed for memory"],
        "hangs": [False, "timeout"],
        "never": [False, "cannot"],
        "missing": [False, "cannot"],
        "where": [True, "passed"],
    }, done
    assert "# broken\n" in done.stdout
    suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("11", "7", "1")
    kinds = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert kinds["says"].get("type") == "failed for memory" and kinds["fine"] is None


def test_who_was_refused_memory_is_tried_once_more_with_twice_as_much():
    manifest = write(
        "more.toml",
        "[defaults]\nneed = \"host=200MiB\"\n" + entry("large", python(300)) + entry("larger", python(900)),
    )
    first = results(run(manifest))
    assert first["large"][1] == "passed" and first["large"][2]["tries"] == "2", first
    assert first["large"][2]["needs"] == '"host=400.00 MiB"', first
    assert first["larger"][1] == "failed for memory" and first["larger"][2]["tries"] == "2", first
    second = results(run(manifest))
    assert second["large"][1] == "passed" and second["large"][2]["tries"] == "1", second
    measured = int(first["large"][2]["host_peak_bytes"])
    assert measured > 300 << 20
    needs = (measured * 5 // 4 + (32 << 20)) / (1 << 20)
    assert second["large"][2]["needs"] == f'"host={needs:.2f} MiB"', (second, measured)


def wait_for_end(pid):
    """Until the process is gone, or waits for its new parent to ask how it ended."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError("it lives on")


def test_who_leaves_memory_behind_is_blamed_and_what_it_left_is_ended():
    ready = f"{FOLDER}/ready"
    os.mkfifo(ready)
    left = f"import signal\n{TAKES.format(200)}\nopen({ready!r}, 'w').write('r')\nsignal.pause()"
    script = f'"$0" -c "$1" & read line < {ready}; echo $! > $FOLDER/left'
    manifest = write(
        "leaks.toml",
        entry("leaks", ["sh", "-c", script, sys.executable, left]) + entry("beside", "exit 0"),
    )
    done = run(manifest)
    with open(f"{FOLDER}/left", encoding="ascii") as file:
        pid = int(file.read())
    assert outcomes(done) == {"leaks": [False, "leaked"], "beside": [True, "passed"]}, done
    assert f"MiB of host left behind in 1 process that lives on: {pid} (" in done.stdout, done
    wait_for_end(pid)


def test_tests_run_beside_each_other_only_as_far_as_memory_goes():
    """Two that wait for each other pass where both have room, and are ended where one has."""
    meets = (
        "import os, sys\nfor own, other in [(0, 1)] if sys.argv[1] == 'a' else [(1, 0)]:\n"
        "    pipes = [os.environ['FOLDER'] + '/meet' + str(i) for i in (own, other)]\n"
        "    fds = [os.open(pipe, os.O_RDWR) for pipe in pipes]\n"
        "    os.write(fds[1], b'x'); os.read(fds[0], 1)\n"
    )
    for i in (0, 1):
        os.mkfifo(f"{FOLDER}/meet{i}")
    tests = [
        entry(name, [sys.executable, "-c", meets, name], need="host=64MiB,gpu0=10GiB", timeout="10m")
        for name in "ab"
    ]
    both = write("both.toml", "".join(tests))
    done = run(both, "-j", "2", "--on", "24GiB")
    assert outcomes(done) == {"a": [True, "passed"], "b": [True, "passed"]}, done
    one = write("one.toml", "".join(tests).replace("10m", "1s"))
    done = run(one, "-j", "2", "--on", "16GiB")
    assert sorted(result[1] for result in outcomes(done).values()) == ["timeout", "timeout"], done


def test_pretended_devices_refuse_and_are_measured():
    takes = [sys.executable, f"{HERE}/takes.py"]
    check = "import subprocess, sys; sys.exit(' 2' in subprocess.run(sys.argv[1:], capture_output=True, text=True).stdout)"
    manifest = write(
        "devices.toml",
        entry("fits", [*takes, "3000"], need="host=1GiB,gpu=4GiB")
        + entry("refused", [sys.executable, "-c", check, *takes, "6000"], need="host=1GiB,gpu=4GiB")
        + entry("never", [sys.executable, "-c", check, *takes, "23000"], need="host=1GiB,gpu=4GiB"),
    )
    found = results(run(manifest, "--on", "24GiB"))
    assert found["fits"][1] == "passed" and int(found["fits"][2]["device_peak_bytes"]) >= 3000 << 20, found
    assert found["refused"][1] == "passed" and found["refused"][2]["tries"] == "2", found
    assert found["never"][1] == "failed for memory", found


def test_a_run_that_was_killed_goes_on_where_it_ended():
    manifest = write(
        "resume.toml",
        entry("first", "echo 1 >> $FOLDER/ran")
        + entry("second", "test -e $FOLDER/go || kill -9 $(cat $FOLDER/pid)", need="host=2GiB"),
    )
    process = subprocess.Popen(
        ["sh", "-c", 'echo $$ > $FOLDER/pid; exec "$0" test -j 1 "$1"', MEMTALLY, manifest],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    write("go", "")
    done = run(manifest, "--resume")
    assert outcomes(done) == {"first": [True, "it passed in the last run"], "second": [True, "passed"]}, done
    with open(f"{FOLDER}/ran", encoding="ascii") as file:
        assert file.read() == "1\n"
    again = run(manifest, "--resume")
    assert [result[0] for result in outcomes(again).values()] == [True, True] and again.returncode == 0


def test_the_order_and_its_bound_are_told_once_times_are_known():
    manifest = write("order.toml", entry("a", "true") + entry("b", "true"))
    assert "this order takes" not in run(manifest).stderr
    assert "this order takes" in run(manifest).stderr


def test_a_manifest_that_cannot_be_read_says_where():
    for text, says in (
        ("[[test]]\nname = 1.5", "line 2: "),
        (entry("a", "true", nead="host=1GiB"), "test 'a' has no key 'nead'"),
        (entry("a", "true", need="disk=1GiB"), "'disk' is no place"),
        (entry("a", "true") + entry("a", "true"), "there are two of this name"),
        (entry("a", "true", timeout="soon"), "its timeout is no number"),
        ("", "there are no tests in it"),
    ):
        done = run(write("bad.toml", text))
        assert done.returncode == 2 and says in done.stderr, done
    assert run(f"{FOLDER}/none.toml").returncode == 2


def test_ctests_list_is_run():
    if not shutil.which("ctest"):
        raise tap.Skip("needs ctest")
    os.mkdir(f"{FOLDER}/ctest")
    write(
        "ctest/CTestTestfile.cmake",
        'add_test(fine "sh" "-c" "test $A = b && test $PWD = /")\n'
        'set_tests_properties(fine PROPERTIES ENVIRONMENT "A=b" WORKING_DIRECTORY "/")\n'
        'add_test(meant "false")\nset_tests_properties(meant PROPERTIES WILL_FAIL ON)\n'
        'add_test(off "false")\nset_tests_properties(off PROPERTIES DISABLED ON)\n'
        'add_test(room "true")\nset_tests_properties(room PROPERTIES RESOURCE_GROUPS "host:2,gpus:16")\n',
    )
    done = run(f"{FOLDER}/ctest", "--ctest", "--on", "24GiB")
    found = results(done)
    assert {name: result[1] for name, result in found.items()} == dict.fromkeys(("fine", "meant", "room"), "passed"), done
    assert found["room"][2]["needs"] == '"gpu=4.00 GiB, host=512.00 MiB"', done  # 16 and 2 slots of 256 MiB


def noting(log, name, status=0):
    return ["sh", "-c", f"echo begin {name} >> {log}; sleep 0.05; echo end {name} >> {log}; exit {status}"]


def moments(log):
    with open(log, encoding="ascii") as file:
        return [tuple(line.split()) for line in file]


def overlap(told, one, other):
    """Whether one began while the other ran."""
    spans = {name: (told.index(("begin", name)), told.index(("end", name))) for name in (one, other)}
    (a, b), (c, d) = spans[one], spans[other]
    return a < d and c < b


def test_locks_turns_and_fixtures_are_kept():
    log = f"{FOLDER}/turns"
    write("turns.toml", "".join([
        entry("cleans", noting(log, "cleans"), cleans_up=["base"]),
        entry("uses1", noting(log, "uses1"), requires=["base"], locks=["card"]),
        entry("uses2", noting(log, "uses2"), requires=["base"], locks=["card", "other"]),
        entry("last", noting(log, "last"), after=["free"]),
        entry("free", noting(log, "free"), locks=["other"]),
        entry("alone", noting(log, "alone"), alone=True),
        entry("makes", noting(log, "makes"), sets_up=["base"]),
        entry("breaks", noting(log, "breaks", 1), sets_up=["gone"]),
        entry("lost", noting(log, "lost"), requires=["gone"]),
        entry("hen", noting(log, "hen"), after=["egg"]),
        entry("egg", noting(log, "egg"), after=["hen"]),
    ]))  # fmt: skip
    for _ in range(3):
        if os.path.exists(log):
            os.unlink(log)
        done = run(f"{FOLDER}/turns.toml", "--jobs", "8")
        found, told = results(done), moments(log)
        at = told.index
        assert at(("end", "makes")) < min(at(("begin", "uses1")), at(("begin", "uses2"))), told
        assert max(at(("end", "uses1")), at(("end", "uses2"))) < at(("begin", "cleans")), told
        assert at(("end", "free")) < at(("begin", "last")), told
        assert not overlap(told, "uses1", "uses2") and not overlap(told, "uses2", "free"), told
        begun = [name for word, name in told if word == "begin"]
        assert not any(overlap(told, "alone", other) for other in begun if other != "alone"), told
        assert not {"lost", "hen", "egg"} & set(begun), told
        assert [found[name][1] for name in ("lost", "hen", "egg")] == ["cannot"] * 3, found
        assert "fixture 'gone' was not set up by 'breaks'" in done.stdout and "wait for it" in done.stdout, done
        assert all(found[name][0] for name in ("cleans", "uses1", "uses2", "last", "free", "alone", "makes")), found


def test_a_fixture_is_set_up_again_where_a_run_goes_on():
    log = f"{FOLDER}/again"
    write("again.toml", entry("makes", noting(log, "makes"), sets_up=["base"]) + entry("fails", noting(log, "fails", 1), requires=["base"]))
    for _ in range(2):
        run(f"{FOLDER}/again.toml", "--resume")
    assert [name for word, name in moments(log) if word == "begin"] == ["makes", "fails"] * 2


def test_turns_that_are_no_names_are_refused():
    write("wrong.toml", entry("a", ["true"], locks="card"))
    done = run(f"{FOLDER}/wrong.toml")
    assert done.returncode == 2 and "its key 'locks' is no array of texts" in done.stderr, done


def test_ctests_turns_are_taken():
    if not shutil.which("ctest"):
        raise tap.Skip("needs ctest")
    log = f"{FOLDER}/ctest-log"
    os.mkdir(f"{FOLDER}/turning")
    properties = {
        "cleans": "FIXTURES_CLEANUP base", "uses1": "FIXTURES_REQUIRED base RESOURCE_LOCK card",
        "uses2": "FIXTURES_REQUIRED base RESOURCE_LOCK card", "serial": "RUN_SERIAL ON", "makes": "FIXTURES_SETUP base",
        "last": "DEPENDS uses1",
    }  # fmt: skip
    text = ""
    for name, told in properties.items():
        words = " ".join(json.dumps(word) for word in noting(log, name))
        text += f"add_test({name} {words})\nset_tests_properties({name} PROPERTIES {told})\n"
    write("turning/CTestTestfile.cmake", text)
    done = run(f"{FOLDER}/turning", "--ctest", "--jobs", "8")
    assert done.returncode == 0, done
    told = moments(log)
    at = told.index
    assert at(("end", "makes")) < at(("begin", "uses1")) and at(("end", "uses1")) < at(("begin", "last")), told
    assert max(at(("end", "uses1")), at(("end", "uses2"))) < at(("begin", "cleans")), told
    assert not overlap(told, "uses1", "uses2"), told
    assert not any(overlap(told, "serial", other) for other in properties if other != "serial"), told


def test_mesons_list_is_run():
    if not shutil.which("meson"):
        raise tap.Skip("needs meson")
    os.mkdir(f"{FOLDER}/meson")
    write(
        "meson/meson.build",
        "project('a')\nsh = find_program('sh')\ntest('fine', sh, args: ['-c', 'test $A = b'], env: ['A=b'])\n"
        "test('skips', sh, args: ['-c', 'exit 77'])\ntest('fails', sh, args: ['-c', 'exit 1'])\n",
    )
    subprocess.run(
        ["meson", "setup", f"{FOLDER}/meson/build", f"{FOLDER}/meson"], stdout=subprocess.DEVNULL, check=True
    )
    done = run(f"{FOLDER}/meson/build", "--meson")
    assert outcomes(done) == {
        "fine": [True, "passed"],
        "skips": [True, "it says that it cannot run here"],
        "fails": [False, "failed"],
    }, done


def test_pytests_list_is_run():
    if subprocess.run([sys.executable, "-m", "pytest", "--version"], capture_output=True, check=False).returncode:
        raise tap.Skip("needs pytest")
    write("test_some.py", "def test_fine():\n    pass\n")
    done = subprocess.run(
        [MEMTALLY, "test", "--pytest", "test_some.py"],
        cwd=FOLDER,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert outcomes(done) == {"test_some.py::test_fine": [True, "passed"]}, done


if __name__ == "__main__":
    try:
        tap.main(globals())
    finally:
        shutil.rmtree(FOLDER)
