#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The plug-in of pytest, from the installed wheel: what it says of tests whose memory is known, alone and beside xdist,
asyncio and rerunfailures, in one process and in processes of their own. With ALL=1 as `make test-python` has it, else a quick slice."""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import xml.etree.ElementTree

import engine
import package
import tap

MIB = 1 << 20
LINE = re.compile(r"^(PASSED|FAILED|SKIPPED|ERROR|RERUN) (?:\[\d+\] )?(\S+?)(?:: | - |$)(.*)$", re.MULTILINE)
HEAD = """
    import os, time
    import pytest
    kept = []

    def take(mib):
        return bytearray(b"x") * (mib << 20)
"""


def tested(source, *options, runs=1, python=None, is_refused=False, before=(), **variables):
    """How each test of a file ended, by name: (word, sentence); what was printed; and the folder's reports of memory."""
    folders = os.pathsep.join([os.environ["MEMTALLY_PYTEST"], *([package.packages()] if python else [])])
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "test_it.py"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(HEAD) + textwrap.dedent(source))
        command = [*before, python or package.program(), "-m", "pytest", "-rA", "-p", "no:randomly", *options]
        for _ in range(runs):
            environment = package.clean(PYTHONPATH=folders, COLUMNS="400", **variables)
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in ((4,) if is_refused else (0, 1)), done.stdout + done.stderr
        ended = {name.rpartition("::")[2]: (word, said) for word, name, said in LINE.findall(done.stdout)}
        path = os.path.join(folder, "memory-report.json")
        figures = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                figures = {name.partition("::")[2]: one for name, one in json.load(file).items()}
    return ended, done.stdout + (done.stderr if is_refused else ""), figures


def words(ended):
    return {name: word for name, (word, _) in ended.items()}


LIMITED = """
    @pytest.mark.memory(limit="32MiB")
    def test_within():
        take(16)

    @pytest.mark.memory(limit="32MiB")
    def test_over():
        take(64)

    @pytest.mark.memory(leak="16MiB")
    def test_leaks():
        kept.append(take(24))

    @pytest.mark.memory(leak="16MiB")
    def test_returns():
        take(64)

    @pytest.mark.memory(limit="1GiB")
    def test_fails_by_itself():
        assert take(8) == "mine"

    def test_without_a_marker():
        kept.append(take(64))
"""
EXPECTED = {
    "test_within": "PASSED", "test_over": "FAILED", "test_leaks": "FAILED", "test_returns": "PASSED",
    "test_fails_by_itself": "FAILED", "test_without_a_marker": "PASSED",
}


def test_a_test_over_its_limits_fails_with_figures_and_others_are_left_alone():
    package.needs_exact_peaks()
    ended, _, figures = tested(LIMITED, "--memory-report=json")
    assert words(ended) == EXPECTED, ended
    assert re.search(r"host: the test took 6\d\.\d+ MiB, 3\d\.\d+ MiB more than its limit of 32.00 MiB", ended["test_over"][1]), ended
    assert "behind, " in ended["test_leaks"][1] and "more than its leak of 16.00 MiB" in ended["test_leaks"][1], ended
    assert "assert" in ended["test_fails_by_itself"][1], ended
    # The kernel counts pages in batches for each processor.
    assert abs(figures["test_over"]["taken"]["host"] - 64 * MIB) <= 4 * MIB, figures
    assert abs(figures["test_leaks"]["stayed"]["host"] - 24 * MIB) <= 4 * MIB, figures
    assert set(figures) == set(EXPECTED) - {"test_without_a_marker"}


def test_a_marker_that_is_written_wrongly_says_what_there_is():
    ended, _, _ = tested("""
    @pytest.mark.memory("32MiB")
    def test_a():
        pass

    @pytest.mark.memory(limits="32MiB")
    def test_b():
        pass

    @pytest.mark.memory(limit="much")
    def test_c():
        pass
    """)
    assert words(ended) == dict.fromkeys(("test_a", "test_b", "test_c"), "FAILED"), ended
    assert "there are limit, device_limit, leak, on" in ended["test_b"][1] and "is no size" in ended["test_c"][1], ended


ISOLATED = LIMITED + """
    @pytest.mark.memory(limit="32MiB")
    def test_never_ends_by_itself():
        block = take(64)
        while True:
            time.sleep(1)

    @pytest.mark.memory(limit="32MiB")
    def test_dies():
        os._exit(3)

    @pytest.mark.memory(limit="32MiB")
    def test_is_alone():
        assert not kept and os.getpid() != int(os.environ["FIRST"])

    @pytest.mark.memory
    @pytest.mark.parametrize("word", ["a b", "c::d"])
    def test_with_a_name(word, tmp_path):
        assert word in ("a b", "c::d")
"""


def test_isolated_a_test_has_a_process_of_its_own_and_is_ended_at_its_limit():
    ended, printed, _ = tested("os.environ.setdefault('FIRST', str(os.getpid()))\n" + textwrap.dedent(ISOLATED), "--memory-isolate")
    assert ended["test_never_ends_by_itself"][0] == ended["test_dies"][0] == "FAILED", printed
    assert "was ended when it had taken" in ended["test_never_ends_by_itself"][1], ended
    assert "the test's process ended before the test did" in ended["test_dies"][1], ended
    expected = {**EXPECTED, "test_is_alone": "PASSED", "b]": "PASSED", "test_with_a_name[c::d]": "PASSED"}
    for name in set(expected) - {"b]", "test_with_a_name[c::d]"}:
        assert ended[name][0] == expected[name], (name, ended[name], printed)
    assert "5 failed, 6 passed" in printed, printed


def test_beside_xdist_asyncio_and_rerunfailures_the_outcome_is_the_same():
    package.needs_exact_peaks()
    source = LIMITED + """
    @pytest.mark.asyncio
    @pytest.mark.memory(limit="32MiB")
    async def test_coroutine():
        block = take(64)

    @pytest.mark.flaky(reruns=2)
    @pytest.mark.memory(limit="32MiB")
    def test_flaky():
        with open("tries", "a") as file:
            file.write("x")
        take(64 if os.path.getsize("tries") < 3 else 1)
    """
    expected = {**EXPECTED, "test_coroutine": "FAILED", "test_flaky": "PASSED"}
    for options in ((), ("-n2",), ("-n2", "--memory-isolate")):
        ended, printed, figures = tested(source, "--memory-report=json", *options)
        assert words(ended) == expected, (options, ended)
        assert "2 rerun" in printed, (options, printed)
        assert {"test_within", "test_leaks"} <= set(figures), (options, figures)


def test_limits_of_the_configuration_hold_for_each_test_without_its_own():
    package.needs_exact_peaks()
    ended, printed, _ = tested("""
    def test_over():
        take(64)

    @pytest.mark.memory(limit="128MiB")
    def test_of_its_own():
        take(64)

    def test_within():
        take(8)
    """, "-o", "memory=limit=32MiB leak=16MiB")
    assert words(ended) == {"test_over": "FAILED", "test_of_its_own": "PASSED", "test_within": "PASSED"}, printed
    assert "more than its limit of 32.00 MiB" in ended["test_over"][1], ended
    _, printed, _ = tested("def test_a(): pass", "-o", "memory=limits=32MiB", is_refused=True)
    assert "in the configuration's memory: memory: limits is no argument of the marker" in printed, printed


def test_on_devices_that_are_there_limits_room_and_cleanup_hold_as_on_the_host():
    """The devices are pretended ones, and pytest runs on them: for the plug-in they are there."""
    before = [package.program("memtally"), "run", "-q", "--on", "2xH100-80GB", "-o", "recording", "--"]
    source = """
    torch = pytest.importorskip("torch")

    def take(mib, device="cuda:1"):
        return torch.empty(mib << 20, dtype=torch.uint8, device=device)

    @pytest.mark.memory(device_limit="128MiB")
    def test_over():
        take(256)

    @pytest.mark.memory(device_limit="512MiB", leak="16MiB")
    def test_returns():
        take(256)

    @pytest.mark.memory(leak="16MiB")
    def test_leaks():
        kept.append(take(64))

    def test_stays(memory_cleanup):
        kept.append(take(160))

    @pytest.mark.memory
    def test_without_room():
        pass
    """
    ended, printed, _ = tested(source, python=engine.torch(), before=before)
    assert words(ended) == {"test_over": "FAILED", "test_returns": "PASSED", "test_leaks": "FAILED", "test_stays": "PASSED",
                            "test_without_room": "PASSED"}, printed
    assert "cuda:1: the test took 256.00 MiB, 128.00 MiB more than its device_limit of 128.00 MiB" in ended["test_over"][1], ended
    assert "cuda:1: the test left 64.00 MiB behind, 48.00 MiB more than its leak of 16.00 MiB" in ended["test_leaks"][1], ended
    assert re.search(r"MemoryStayed: test_it.py::test_stays left 160.00 MiB behind on cuda:1\n +160.00 MiB  Tensor", printed), printed
    ended, printed, _ = tested(source, "-k", "without_room", "--memory-min-free", "gpu1=100GiB", python=engine.torch(), before=before)
    assert "1 skipped" in printed and "1 passed" not in printed, printed
    assert "gpu1 has 7" in printed and "--memory-min-free wants 100.00 GiB" in printed, printed


def test_in_order_what_took_little_comes_first():
    source = """
    @pytest.mark.memory
    def test_large():
        take(48)

    @pytest.mark.memory
    def test_small():
        take(8)

    def test_unknown():
        pass
    """
    order = re.compile(r"test_it.py::(\w+) PASSED")
    _, first, _ = tested(source, "-v", "--memory-order")
    assert order.findall(first) == ["test_large", "test_small", "test_unknown"], first
    _, second, _ = tested(source, "-v", "--memory-order", runs=2)
    assert order.findall(second) == ["test_unknown", "test_small", "test_large"], second


def test_in_order_a_large_test_runs_only_where_there_is_as_much_room_as_it_took():
    """On devices of 79 GiB that are pretended; for the plug-in they are there."""
    before = [package.program("memtally"), "run", "-q", "--on", "H100-80GB", "--"]
    source = """
    torch = pytest.importorskip("torch")

    def take(gib):
        return torch.empty(gib << 30, dtype=torch.uint8, device="cuda")

    @pytest.mark.memory
    def test_largest():
        take(50)

    @pytest.mark.memory
    def test_fits_still():
        take(36)

    @pytest.mark.memory
    def test_keeps():
        block = take(35)
        if os.environ["KEEPS"]:
            kept.append(block)
    """
    order = re.compile(r"test_it.py::(\w+) (PASSED|SKIPPED)")
    _, printed, _ = tested(source, "-v", "--memory-order", runs=2, python=engine.torch(), before=before, KEEPS="")
    assert order.findall(printed) == [("test_keeps", "PASSED"), ("test_fits_still", "PASSED"), ("test_largest", "PASSED")], printed
    _, printed, _ = tested(source, "-v", "--memory-order", runs=2, python=engine.torch(), before=before, KEEPS="1")
    assert order.findall(printed) == [("test_keeps", "PASSED"), ("test_fits_still", "PASSED"), ("test_largest", "SKIPPED")], printed
    assert re.search(r"the test took 50.00 GiB of cuda:0 in the last run, and 4\d\.\d+ GiB are free; 35.00 GiB were left there since", printed), printed


def test_a_report_as_a_page_has_a_row_for_each_test_and_place():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "test_it.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import pytest\n@pytest.mark.memory\n@pytest.mark.parametrize('word', ['<i>', 'b'])\ndef test_a(word):\n"
                       "    bytearray(b'x') * (32 << 20)\n")
        package.said("import os, pytest, sys; os.chdir(sys.argv[1]); sys.exit(pytest.main(['-q', '--memory-report=html']))", folder,
                     PYTHONPATH=os.environ["MEMTALLY_PYTEST"])
        with open(os.path.join(folder, "memory-report.html"), encoding="utf-8") as file:
            text = file.read()
    drawn = xml.etree.ElementTree.fromstring(text.partition("<body>")[2].partition("</body>")[0])
    rows = [[cell.text or "" for cell in row] for row in drawn.iter("tr")]
    assert rows[0] == ["test", "place", "took", "left behind"] and {row[0] for row in rows[1:]} == {
        "test_it.py::test_a[<i>]", "test_it.py::test_a[b]"}, rows
    assert all(row[1] == "host" and row[2].endswith("iB") for row in rows[1:]) and "src=" not in text and "href=" not in text, text


def test_without_room_a_test_is_postponed_and_then_skipped():
    source = """
    @pytest.fixture(scope="module")
    def shared():
        yield "here"

    def test_first(shared):
        assert shared

    @pytest.mark.memory
    def test_marked(shared):
        assert shared

    def test_last(shared):
        assert shared
    """
    ended, printed, _ = tested(source, "-v", "--memory-min-free", "host=1000TiB")
    order = re.findall(r"test_it.py::(\w+) (?:PASSED|SKIPPED)", printed)
    assert order == ["test_first", "test_last", "test_marked"], printed
    assert "--memory-min-free wants 1000.00 TiB" in printed, printed
    ended, printed, _ = tested(source, "-v", "--memory-min-free", "host=1KiB")
    assert words(ended) == dict.fromkeys(("test_first", "test_marked", "test_last"), "PASSED"), ended


def group_of(size):
    """A control group of memory that has no more, as a pod has; of either version."""
    for base, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = os.path.join(base, f"memtally-test-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, name), "w", encoding="ascii") as file:
                file.write(str(size))
            return path
        except OSError:
            os.rmdir(path)
    raise tap.Skip("no control group of memory can be made here")


def test_the_limit_of_a_control_group_is_heeded():
    path = group_of(1 << 30)
    try:
        within = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', path]
        source = """
    @pytest.mark.memory
    def test_it():
        pass

    def test_budget(memory_budget):
        from memtally import errors
        budget = memory_budget(file="budget")
        assert 0 < budget.free()["host"] < 1 << 30
        with pytest.raises(errors.LimitExceeded):
            budget.reserve(host="1025MiB")
    """
        _, printed, _ = tested(source, "--memory-min-free", "host=1GiB", before=within)
    finally:
        os.rmdir(path)
    assert "1 passed, 1 skipped" in printed and re.search(r"host has \d{3}\.\d\d MiB free, and --memory-min-free wants 1.00 GiB", printed), printed


def test_what_stays_is_said_with_the_tests_name_and_a_tracker_has_it():
    ended, printed, _ = tested("""
    def test_stays(memory_cleanup):
        kept.append(take(160))

    def test_passes(memory_cleanup):
        take(160)

    def test_fails(memory_cleanup):
        block = take(150)
        assert not block

    def test_after_it(memory_cleanup):
        pass

    def test_tracked(memory_tracker):
        memory_tracker.mark("here")
        assert memory_tracker.label.endswith("test_tracked (call)") or memory_tracker.label.endswith("test_tracked")
        assert [mark.name for mark in memory_tracker.marks] == ["start", "here"]
    """)
    assert {name for name, word in words(ended).items() if word != "PASSED"} == {"test_fails"}, printed
    assert re.search(r"left 1\d\d\.\d\d MiB behind on host\n +\d+\.\d\d MiB  bytearray, test_it.kept\[0\]", printed), printed
    assert re.findall(r"MemoryStayed: (\S+) left 1\d\d\.\d\d MiB behind on host", printed) == ["test_it.py::test_stays"], printed


def test_where_nothing_is_asked_for_nothing_of_memtally_is_loaded():
    ended, printed, _ = tested("""
    import sys

    def test_it():
        loaded = {name for name in sys.modules if name.startswith("memtally")}
        assert loaded == {"memtally", "memtally.pytest_plugin"} and "ctypes" not in sys.modules, loaded
    """, "-p", "no:xdist", "-p", "no:asyncio", "-p", "no:rerunfailures", "-p", "no:faulthandler")
    assert words(ended) == {"test_it": "PASSED"}, printed


def test_on_devices_that_are_not_there_a_test_fails_where_it_would_run_out():
    ended, printed, figures = tested("""
    @pytest.mark.memory(on="H100-80GB", device_limit="1GiB")
    def test_fits():
        import torch
        assert torch.empty(64 << 20, dtype=torch.uint8, device="cuda").is_cuda

    @pytest.mark.memory(on="H100-80GB,H100-80GB", device_limit="1GiB")
    def test_over():
        import torch
        torch.empty(800 << 20, dtype=torch.uint8, device="cuda:1")

    @pytest.mark.memory(on="H100-80GB")
    def test_runs_out():
        import torch
        torch.empty(90 << 30, dtype=torch.uint8, device="cuda")

    @pytest.mark.memory(on="H100-80GB")
    def test_fails_before_it_took_any():
        assert 1 == 2
    """, "--memory-report=json", python=engine.torch())
    assert words(ended) == {"test_fits": "PASSED", "test_over": "FAILED", "test_runs_out": "FAILED",
                            "test_fails_before_it_took_any": "FAILED"}, printed
    # 800 MiB and the driver's context.
    assert re.search(r"gpu:1: the test took 1\.\d+ GiB, .* more than its device_limit of 1.00 GiB", ended["test_over"][1]), ended
    assert "gpu:0 has no room for 90.00 GiB" in ended["test_runs_out"][1] and "OutOfMemoryError" in printed, ended
    assert "assert 1 == 2" in ended["test_fails_before_it_took_any"][1], ended
    assert figures["test_fits"]["taken"]["cuda:0"] == 64 * MIB, figures

BUDGET = """
    import memtally, multiprocessing, re, sys
    from memtally import errors, library

    def reserved(budget_file, **sizes):
        from memtally.budgets import Budget
        with Budget(file=budget_file).reserve(**sizes) as held:
            return held.bytes

    @pytest.fixture
    def budget(memory_budget, tmp_path):
        return memory_budget(min_free="64MiB", file=str(tmp_path / "budget"))
"""


def test_a_budget_promises_what_there_is_once_among_processes():
    ended, printed, _ = tested(BUDGET + """
    def test_shared(budget):
        half = budget.free()["host"] // 4 * 3
        mine = budget.reserve(host=half)
        assert mine.bytes == {"host": half}
        said = re.escape(library.text_of_size(half))
        with pytest.raises(errors.Busy, match=f"{said} are promised and 0 B of them taken, and {said} are asked for"):
            budget.run_isolated(reserved, budget.file, host=half)
        with pytest.raises(errors.Busy):
            budget.reserve(host=half)
        mine.release()
        mine.release()
        assert budget.run_isolated(reserved, budget.file, host=half // 2)[0] == {"host": half // 2}

    def test_for_the_session(memory_budget, tmp_path):
        most = memory_budget().free()["host"] // 4 * 3
        kept = memory_budget(reserved={"host": most}, file=str(tmp_path / "budget"))
        with pytest.raises(errors.Busy):
            kept.run_isolated(reserved, kept.file, host=most)
        kept.release()
        kept.run_isolated(reserved, kept.file, host=most // 2)

    def test_never(budget):
        with pytest.raises(errors.LimitExceeded):
            budget.reserve(host="1000TiB", wait=1000)

    def test_waits_until_another_gives_back(budget):
        most = budget.free()["host"] // 4 * 3
        other = multiprocessing.get_context("fork").Process(target=hold, args=(budget.file, most))
        other.start()
        while not os.path.exists(budget.file + ".held"):
            time.sleep(0.01)
        with pytest.raises(errors.Busy):
            budget.reserve(host=most)
        open(budget.file + ".go", "w").close()
        assert budget.reserve(host=most, wait=300).bytes == {"host": most}
        other.join()

    def hold(file, size):
        from memtally.budgets import Budget
        held = Budget(file=file).reserve(host=size)
        open(file + ".held", "w").close()
        while not os.path.exists(file + ".go"):
            time.sleep(0.01)
        held.release()

    def test_words(budget):
        with pytest.raises(errors.ArgumentError, match="no place 'disk'"):
            budget.reserve(disk="1GiB")
        with pytest.raises(errors.NotFound, match="no place gpu7"):
            type(budget)({"gpu7": 1}, file=budget.file)
    """)
    assert len(ended) == 5 and set(words(ended).values()) == {"PASSED"}, printed


def test_workers_of_xdist_share_one_budget():
    """Two of them are never within at a time, for each is promised more than half."""
    ended, printed, _ = tested(BUDGET + """
    @pytest.mark.parametrize("n", range(4))
    def test_alone(memory_budget, n):
        budget = memory_budget(file="budget")
        with budget.reserve(host=int(os.environ["MOST"]), wait=300):
            within = os.open("within", os.O_CREAT | os.O_EXCL)
            os.close(within)
            os.unlink("within")
    """, "-v", "-n2", MOST=str(_most_of_the_host()))
    assert len(ended) == 4 and set(words(ended).values()) == {"PASSED"}, printed
    assert {"[gw0]", "[gw1]"} <= set(re.findall(r"\[gw\d\]", printed)), printed


def _most_of_the_host():
    return int(json.loads(package.ran([package.program(), "-c", """
import json, tempfile
from memtally.budgets import Budget
with tempfile.TemporaryDirectory() as folder:
    print(json.dumps(Budget(file=folder + "/budget").free()["host"] // 4 * 3))
"""])))


def test_a_budget_has_devices_and_finds_one_with_room():
    ended, printed, _ = tested(BUDGET + """
    def test_devices(memory_budget, tmp_path):
        budget = memory_budget(min_free="1GiB", file=str(tmp_path / "budget"))
        assert budget.min_free == dict.fromkeys(("host", "gpu0", "gpu1"), 1 << 30)
        free = budget.free()
        assert (free["gpu0"], free["gpu1"]) == (6 << 30, 8 << 30)
        assert budget.reserve(gpu0="3GiB").bytes == {"gpu0": 3 << 30}  # leaves 3 GiB, and 1 stays free
        with pytest.raises(errors.Busy, match="gpu0 has 6.00 GiB of 8.00 GiB free, 3.00 GiB are .*, 1.00 GiB stay free"):
            budget.reserve(gpu0="2049MiB")
        assert budget.reserve(gpu="4GiB").bytes == {"gpu1": 4 << 30}
        with pytest.raises(errors.Busy, match="gpu0 has .*gpu1 has 8.00 GiB of 8.00 GiB free, 4.00 GiB are"):
            budget.run_isolated(reserved, budget.file, gpu="4097MiB")
        assert budget.run_isolated(reserved, budget.file, gpu="4GiB")[0] == {"gpu1": 4 << 30}
        with pytest.raises(errors.LimitExceeded):
            budget.reserve(gpu0="7169MiB")
        budget.release()
        used = budget.reserve(gpu0="2GiB")
        with pytest.raises(errors.Busy):
            budget.reserve(gpu0="5GiB")
        used.took(gpu0="2GiB")  # those that the device has used: they are not counted twice
        assert budget.reserve(gpu0="5GiB").bytes == {"gpu0": 5 << 30}
    """, LD_LIBRARY_PATH=os.path.dirname(package.built("tests", "budget", "libnvidia-ml.so.1")), NVML_USED=f"{2 << 30},0")
    assert words(ended) == {"test_devices": "PASSED"}, printed


SEPARATE = BUDGET + """
    def takes(mib, outcome):
        block = take(mib)
        if outcome == "raises":
            raise KeyError("lost", mib)
        if outcome == "dies":
            os.kill(os.getpid(), 9)
        if outcome == "leaves":
            os._exit(3)
        if outcome == "skips":
            pytest.skip("for a reason")
        if outcome == "lambda":
            return lambda: block
        return os.getpid(), len(block)

    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a} and {b}")

    def raises_odd():
        raise Odd(1, 2)

    @pytest.fixture(params=["fork", "spawn"])
    def start(request, monkeypatch):
        monkeypatch.setattr(multiprocessing, "get_start_method", lambda: request.param)

    @pytest.mark.memory(limit="48MiB")
    def test_result(budget, start):
        (pid, size), record = budget.run_isolated(takes, 96, "returns")
        assert pid != os.getpid() and size == 96 << 20
        assert abs(record.growth_bytes - size) <= 4 << 20, record

    def test_exception(budget, start):
        with pytest.raises(KeyError) as caught:
            budget.run_isolated(takes, 64, outcome="raises")
        assert caught.value.args == ("lost", 64)
        assert 'raise KeyError("lost", mib)' in str(caught.value.__cause__) and "in takes" in str(caught.value.__cause__)
        assert caught.value.memtally_record.growth_bytes >= 60 << 20
        with pytest.raises(memtally.Error, match="Odd: 1 and 2"):
            budget.run_isolated(raises_odd)

    def test_death(budget, start):
        with pytest.raises(errors.ChildFailed, match="the process of takes was ended by SIGKILL before it returned"):
            budget.run_isolated(takes, 1, "dies")
        with pytest.raises(errors.ChildFailed, match="ended with status 3"):
            budget.run_isolated(takes, 1, "leaves")
        with pytest.raises(errors.Unsupported, match="cannot be sent"):
            budget.run_isolated(takes, 1, "lambda")
        with pytest.raises(pytest.skip.Exception, match="for a reason"):
            budget.run_isolated(takes, 1, "skips")

    def test_here(memory_budget, tmp_path):
        budget = memory_budget(isolate=False, file=str(tmp_path / "budget"))
        (pid, _), record = budget.run_isolated(takes, 64, "returns")
        assert pid == os.getpid() and record.growth_bytes >= 60 << 20

    def test_none_is_left():
        assert not multiprocessing.active_children()
"""


def test_a_function_in_a_process_of_its_own_returns_raises_and_dies_as_it_does():
    package.needs_exact_peaks()
    for options in ((), ("-n2",)):
        ended, printed, _ = tested(SEPARATE, *options)
        assert len(ended) == 8 and set(words(ended).values()) == {"PASSED"}, printed

BASED = """
    def of(name):  # what the tests hold grows where the environment says so
        return int(os.environ.get(name, "0")) << 20

    def hold(size):
        import torch
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    @pytest.mark.memory(on="H100-80GB")
    def test_grows():
        weights = hold(1 << 30)
        more = hold(of("MORE") or 512)

    @pytest.mark.memory(on="H100-80GB")
    def test_stays():
        assert hold(64 << 20).is_cuda
"""


def test_beyond_its_baseline_a_test_fails_and_says_what_grew_and_who_asked():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "memory.txt")
        options = (f"--memory-baseline={path}",)

        def again(*more, **variables):
            return tested(BASED, *options, *more, python=engine.torch(), **variables)[:2]

        ended, printed = again()
        assert words(ended) == {"test_grows": "PASSED", "test_stays": "PASSED"}, printed
        with open(path, encoding="utf-8") as file:
            first = file.read()
        held = dict(re.findall(r"^    gpu:0 +(\w+) +(\d+)  ", first.partition("test_stays")[0], re.MULTILINE))
        assert int(held["total"]) == sum(int(size) for name, size in held.items() if name != "total"), first
        assert int(held["activations"]) == (1 << 30) + 512, first
        ended, printed = again(MORE="400")
        assert words(ended) == {"test_grows": "FAILED", "test_stays": "PASSED"}, printed
        said = r"gpu:0: the test took \S+ GiB, 39\d\.\d+ MiB \(2\d\.\d %\) more than its baseline of \S+ GiB: activations 400.00 MiB more"
        assert re.search(said, printed), printed
        assert re.search(r"where 400.00 MiB are asked for by test_it.py:\d+ hold < test_it.py:\d+ test_grows", printed), printed
        assert words(again("--memory-tolerance", "40%", MORE="400")[0]) == {"test_grows": "PASSED", "test_stays": "PASSED"}
        assert words(again("-n2", MORE="400")[0]) == {"test_grows": "FAILED", "test_stays": "PASSED"}
        with open(path, encoding="utf-8") as file:
            assert file.read() == first  # a test that is there keeps its figures


def test_a_baseline_is_read_as_it_was_written_and_says_where_it_is_wrong():
    baselines = package.part("baselines")
    known = {
        "b.py::test[a b]": {"gpu:0": {"total": 5 << 30, "weights": 3 << 30, "kv_cache": 2 << 30}, "gpu:1": {"total": 7}},
        "a.py::test": {"cuda:0": {"total": 2**64 - 1}},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "memory.txt")
        assert baselines.read(path) == {}
        baselines.write(path, known)
        with open(path, "rb") as file:
            written = file.read()
        assert baselines.read(path) == known
        assert written.splitlines()[2] == b"a.py::test"
        assert b"    gpu:0   weights           3221225472  3.00 GiB\n" in written, written

        def wrong(data):
            with open(path, "wb") as file:
                file.write(data)
            try:
                baselines.read(path)
            except ValueError as error:
                return str(error).removeprefix(path + ": ")
            return None

        assert wrong(b"a\n  gpu:0 total many\n") == "line 2, byte 2: a peak is a place, a category and a number of bytes"
        assert wrong(b"  gpu:0 total 5\n") == "line 1, byte 0: a peak comes before any test"
        assert wrong(b"a\n  gpu:0 total 5\na\n") == "line 3, byte 18: the test is here twice"
        assert wrong(b"a\n  g total 5\n  g total 5\n") == "line 3, byte 14: total of g is here twice"
        chance = random.Random(17)
        for _ in range(3000):  # whatever the bytes are, nothing but a ValueError
            data = bytearray(written)
            for _ in range(chance.randrange(1, 6)):
                at = chance.randrange(len(data))
                data[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
            wrong(bytes(data))
    _, printed, _ = tested("def test_a(): pass", "--memory-baseline", "test_it.py", is_refused=True)
    assert "--memory-baseline: " in printed and "test_it.py: line " in printed, printed

TRAIN = """
import sys
import torch

def step(size):
    return torch.empty(size << 30, dtype=torch.uint8, device="cuda")

if __name__ == "__main__":
    held = step(int(open("size").read()))
"""
TEST_TRAIN = """
import pytest

@pytest.mark.memory(on="H100-80GB", device_limit="60GiB")
def test_step():
    import train
    assert train.step(2).is_cuda
"""


def steps_of_workflow():
    with open(os.path.join(package.ROOT, "examples", "github-actions.yml"), encoding="utf-8") as file:
        return re.findall(r"^      - run: (.+)$", file.read(), re.MULTILINE)


def test_the_workflow_file_does_as_a_script_what_it_is_for():
    """Where `pip` finds nothing to do, `python` is one with PyTorch, and the folder is a repository."""
    with tempfile.TemporaryDirectory() as folder:
        def put(path, text):
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)

        put("bin/pip", '#!/bin/sh\necho "$@" >pip\n')
        put("bin/python", f'#!/bin/sh\nexec {engine.torch()} "$@"\n')
        for path, text in (("train.py", TRAIN), ("tests/test_train.py", TEST_TRAIN), ("size", "50"), (".gitignore", "bin\npip\n__pycache__\n")):
            put(path, text)
        environment = package.clean(
            PATH=os.pathsep.join([os.path.join(folder, "bin"), os.path.dirname(package.program()), os.environ["PATH"]]),
            PYTHONPATH=os.pathsep.join([os.environ["MEMTALLY_PYTEST"], package.packages()]), COLUMNS="400",
            GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_SYSTEM=os.devnull, **{
                f"GIT_{who}_{what}": "a@b.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")})

        def run(step):
            done = subprocess.run(["bash", "-e", "-c", step], cwd=folder, env=environment, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

        installs, tests, unchanged, rehearses = steps_of_workflow()
        assert run(installs)[0] == 0
        assert run("git init -q && git add . && git commit -qm first")[0] == 0
        status, printed = run(tests)
        assert status == 0 and "1 passed" in printed and "cuda:0" in printed, printed
        assert run("git add memory.txt && git commit -qm peaks")[0] == 0
        for step in (tests, unchanged, rehearses):
            status, printed = run(step)
            assert status == 0, printed
        put("size", "70")
        status, printed = run(rehearses)
        assert status == 1 and "more than the limit of 60.00 GiB" in printed, printed
        assert "train.py:6 step < train.py:9 <module>" in " ".join(printed.split()), printed
        put("train.py", TRAIN.replace("size << 30", "size << 31"))
        status, printed = run(tests)
        assert status == 1 and "more than its baseline of" in printed, printed


if __name__ == "__main__":
    quick = (
        "test_a_baseline_is_read_as_it_was_written_and_says_where_it_is_wrong",
        "test_a_function_in_a_process_of_its_own_returns_raises_and_dies_as_it_does",
        "test_a_budget_promises_what_there_is_once_among_processes",
        "test_a_test_over_its_limits_fails_with_figures_and_others_are_left_alone",
        "test_what_stays_is_said_with_the_tests_name_and_a_tracker_has_it",
        "test_where_nothing_is_asked_for_nothing_of_memtally_is_loaded",
    )
    tap.main(globals(), None if os.environ.get("ALL") or len(sys.argv) > 1 else quick)
