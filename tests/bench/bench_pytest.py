#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the Python package costs: 200 tests of pytest without the plug-in, with it idle, and measured; a collection beside Python's
own; the import. Prints figures and judges nothing."""

import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import package  # noqa: E402  # pylint: disable=wrong-import-position

N_TESTS = 200
ROUNDS = 7
# A program with a heap as large programs have it: a million objects that a collection looks at.
COLLECT = """
    import gc, json, time
    from memtally import resetting
    heap = [[index] for index in range(1_000_000)]

    def timed(fn):
        begin = time.perf_counter()
        fn()
        return 1000 * (time.perf_counter() - begin)

    def rounds():
        counted = []
        gc.callbacks.append(lambda phase, info: counted.append(phase == "stop"))
        resetting.collect()
        gc.callbacks.pop()
        return sum(counted)
    gc.collect()
    pairs = [(timed(gc.collect), timed(resetting.collect)) for _ in range(9)]
    print(json.dumps([sorted(pair[0] for pair in pairs)[4], sorted(pair[1] for pair in pairs)[4], rounds()]))
"""
# Beside `pass`, what the interpreter itself takes to start is not in it.
IMPORT = """
    import json, time
    begin = time.perf_counter()
    import memtally
    print(json.dumps(1000 * (time.perf_counter() - begin)))
"""


@functools.cache
def pytest_folder():
    found = os.environ.get("MEMTALLY_PYTEST")
    return found or package.ran([os.path.join(ROOT, "scripts", "engine"), "pytest"]).strip()


def seconds(folder, *options):
    """Measures processor time, which a busy machine does not stretch as it does the clock."""
    command = [package.program(), "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:asyncio", "-p", "no:rerunfailures", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=package.clean(PYTHONPATH=pytest_folder()), capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert f"{N_TESTS} passed" in done.stdout, done.stdout + done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bench_tests():
    with tempfile.TemporaryDirectory() as folder:
        for name, marker in (("test_plain.py", ""), ("test_marked.py", '@pytest.mark.memory(limit="1TiB")\n')):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(f"import pytest\n{marker}@pytest.mark.parametrize('n', range({N_TESTS}))\ndef test(n):\n    assert n >= 0\n")
        ways = {"without": ("test_plain.py", "-p", "no:memtally"), "idle": ("test_plain.py",), "measured": ("test_marked.py",)}
        taken = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, options in ways.items():  # in turn, so that what else runs here weighs on all alike
                taken[name].append(seconds(folder, *options))
    for name in ("idle", "measured"):
        more = [1000 * (one - bare) / N_TESTS for one, bare in zip(taken[name], taken["without"], strict=True)]
        print(f"{name + ', a test beyond pytest':34} {statistics.median(more):8.3f} ms   least {min(more):.3f}, most {max(more):.3f}")


def main():
    bench_tests()
    own, ours, rounds = package.answered(textwrap.dedent(COLLECT))
    print(f"{'a collection, gc.collect()':34} {own:8.3f} ms")
    print(f"{'memtally until nothing goes':34} {ours:8.3f} ms   {rounds} rounds, {ours / own / rounds:.2f} of gc.collect() each")
    imports = sorted(json.loads(package.said(textwrap.dedent(IMPORT))) for _ in range(9))
    print(f"{'import memtally':34} {imports[4]:8.3f} ms   least {imports[0]:.3f}, most {imports[-1]:.3f}")


if __name__ == "__main__":
    main()
