#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package as it is installed from the wheel into an empty environment, without PyTorch: it measures, asks the
command, says what went wrong, and keeps out of the way of what memtally puts into programs."""

import csv
import html.parser
import json
import os
import re
import subprocess
import tempfile

import package
import tap
import test_monitor
import test_pooling
import test_tracker

MIB = 1 << 20


def test_importing_brings_in_neither_pytorch_nor_numpy_nor_the_library():
    told = package.answered("""
        import sys
        before = set(sys.modules)
        import memtally
        names = set(sys.modules) - before
        import json
        with open("/proc/self/maps") as maps:
            print(json.dumps([sorted(names), "libmemtally" in maps.read()]))
    """)
    names, has_library = told
    assert not {"torch", "numpy", "ctypes", "subprocess", "typing"} & set(names), names
    assert not has_library


def test_everything_that_is_offered_is_there():
    offered, version = package.answered("""
        import json, memtally
        from memtally import *
        assert all(callable(getattr(memtally, name)) for name in memtally.__all__)
        assert set(memtally.__all__) <= set(dir(memtally))
        print(json.dumps([memtally.__all__, memtally.__version__]))
    """)
    assert "measure" in offered
    assert package.ran([package.program("memtally"), "--version"]).strip() == f"memtally {version}"


def test_the_command_is_the_wheels_own():
    path = package.ran([package.program(), "-c", "from memtally import places; print(places.command())"])
    assert path.startswith(package.packages()), path
    facts = json.loads(package.ran([package.program("memtally"), "--version", "--json"]))
    assert facts["version"], facts


# The kernel counts pages in batches for each processor; a few batches may be missing or over.
BATCHES = 4 * MIB


def is_about(size, mib):
    return abs(size - mib * MIB) <= BATCHES


# Touches each page of a block and gives it back: what is resident must have grown by as much at the peak.
TOUCH = """
    import json, mmap, sys
    import memtally

    def touch(size, *, keep=None):
        block = mmap.mmap(-1, size)
        for at in range(0, size, 4096):
            block[at] = 1
        block.close()
        return size if keep is None else keep
"""


def test_a_call_is_measured_and_its_result_comes_back():
    package.needs_exact_peaks()
    result, record = package.answered(TOUCH + """
    result, record = memtally.measure(touch, 64 << 20, keep="all")
    print(json.dumps([result, record.to_dict()]))
    """)
    assert result == "all"
    assert is_about(record["growth_bytes"], 64), record
    assert record["peak_memory_bytes"] == record["host"]["peak_bytes"] == record["host"]["baseline_bytes"] + record["growth_bytes"]
    assert (record["device"], record["method"], record["devices"]) == ("host", "exact", []), record
    assert record["latency_ms"] > 0 and record["problem"] is None


def test_a_sampled_peak_says_so():
    record = package.answered(TOUCH + """
    import time
    with memtally.Measure(method="sampled", interval=0.001) as measure:
        block = bytearray(64 << 20)
        time.sleep(0.2)
    print(json.dumps(measure.record.to_dict()))
    """)
    assert record["method"] == "sampled" and is_about(record["growth_bytes"], 64), record


def test_an_exception_goes_through_with_the_record_on_it():
    package.needs_exact_peaks()
    record = package.answered(TOUCH + """
    def fail():
        touch(64 << 20)
        raise KeyError("mine")
    try:
        memtally.measure(fail)
    except KeyError as error:
        assert error.args == ("mine",)
        print(json.dumps(error.memtally_record.to_dict()))
    """)
    assert is_about(record["growth_bytes"], 64), record


def test_nested_measurements_each_have_their_own_peak():
    package.needs_exact_peaks()
    inner, outer = package.answered(TOUCH + """
    def around():
        touch(96 << 20)
        return memtally.measure(touch, 32 << 20)[1]
    inner, outer = memtally.measure(around)
    print(json.dumps([inner.to_dict(), outer.to_dict()]))
    """)
    assert is_about(inner["growth_bytes"], 32), inner
    assert is_about(outer["growth_bytes"], 96), outer
    assert inner["host"]["overlapped"] and outer["host"]["overlapped"]
    assert outer["latency_ms"] > inner["latency_ms"]


def test_coroutines_threads_and_wrapped_functions_are_measured():
    package.needs_exact_peaks()
    grown, records, last = package.answered(TOUCH + """
    import asyncio, threading
    async def wait(size):
        await asyncio.sleep(0)
        return touch(size)
    async def both():
        return await asyncio.gather(memtally.measure(wait, 32 << 20), memtally.measure(wait, 32 << 20))
    grown = [record.growth_bytes for _, record in asyncio.run(both())]

    wrapped = memtally.Measure().wrap(touch)
    assert wrapped(16 << 20) == 16 << 20 and wrapped.__name__ == "touch"
    grown.append(wrapped.measure.record.growth_bytes)

    records = []
    threads = [threading.Thread(target=lambda: records.append(memtally.measure(touch, 8 << 20)[1])) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    last = memtally.measure(touch, 8 << 20)[1]
    print(json.dumps([grown, [record.to_dict() for record in records], last.to_dict()]))
    """)
    assert all(is_about(size, expected) for size, expected in zip(grown, (32, 32, 16), strict=True)), grown
    assert len(records) == 8 and all(record["growth_bytes"] <= 8 * 8 * MIB + BATCHES for record in records), records
    assert is_about(last["growth_bytes"], 8) and not last["host"]["overlapped"], last


def test_a_forked_child_goes_on_and_measures_anew():
    package.needs_exact_peaks()
    told = package.answered(TOUCH + """
    import os
    def fork():
        read, write = os.pipe()
        if os.fork() == 0:
            _, record = memtally.measure(touch, 32 << 20)
            os.write(write, json.dumps(record.to_dict()).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            return json.load(file)
    print(json.dumps(memtally.measure(fork)[0]))
    """)
    assert is_about(told["growth_bytes"], 32), told


def test_a_rehearsal_has_to_the_byte_what_the_program_asks_for():
    program = package.built("tests", "cuda", "cuda_program")
    fits, rows, total, says, reason, outcome = package.answered("""
    import json, sys, memtally
    made = memtally.rehearse([sys.argv[1], "must", "2", "must", "1"], device=["H100-80GB", "H100-80GB"])
    first, second = made.place("gpu:0"), made.place("gpu:1")
    assert not second.rows and made.place("host") is not None
    over = memtally.rehearse([sys.argv[1], "must", "20", "must", "6"], device="24GiB", suggest=False)
    rows = {row.category: row.bytes for row in first.rows}
    print(json.dumps([made.fits, rows, first.total_bytes, str(made).splitlines()[0], over.reason, over.verdict]))
    """, program)
    # A context of such a card was measured as 527 MiB; the driver gives memory out in pages of 2.
    assert fits and rows == {"context": 528 << 20, "cached": 3 << 30} and total == sum(rows.values()), rows
    assert says.startswith("FITS: gpu:0 takes 3.52 GiB"), says
    assert outcome == "CANNOT" and "gpu:0 has no room for 6.00 GiB" in reason, reason
    said = package.said("""
    import sys, memtally
    for words in ([], ["/no/such/program"], [sys.executable, "-c", ""]):
        try:
            memtally.rehearse(words, device="24GiB")
        except memtally.Error as error:
            print(type(error).__name__)
    """)
    assert len(said.split()) == 3, said


def test_a_baseline_is_one_file_for_tests_and_programs():
    program = package.built("tests", "cuda", "cuda_program")
    before, after, verdicts, peaks = package.answered("""
    import json, sys, memtally
    from memtally import baselines
    def again(gibibytes):
        return memtally.rehearse([sys.argv[1], "must", str(gibibytes)], device="H100-80GB", baseline="memory.txt", suggest=False)
    baselines.write("memory.txt", {"a.py::test": {"gpu:0": {"total": 5, "weights": 5}}})
    made = [again(1), again(1)]
    before = open("memory.txt").read()
    known = baselines.read("memory.txt")
    baselines.write("memory.txt", known)
    after, peaks = open("memory.txt").read(), baselines.peaks_of(made[0])
    assert list(known.values()) == [peaks, {"gpu:0": {"total": 5, "weights": 5}}], known
    known[f"{sys.argv[1]} must 1"]["gpu:0"]["total"] -= 1 << 30
    baselines.write("memory.txt", known)
    made.append(again(1))
    print(json.dumps([before, after, [one.verdict for one in made], peaks]))
    """, program)
    # A context of such a card was measured as 527 MiB; the driver gives memory out in pages of 2.
    assert peaks["gpu:0"]["total"] == (1 << 30) + (528 << 20), peaks
    assert before == after and verdicts == ["FITS", "FITS", "EXCEEDS"], (before, after, verdicts)


def test_a_peak_is_that_of_a_recording_of_the_same_run():
    package.needs_exact_peaks()
    for mib in (64, 300):
        measured, recorded = package.answered("""
        import json, os, sys, memtally, tempfile
        if len(sys.argv) > 2:
            def work():
                blocks = [bytearray(b"x") * (int(sys.argv[1]) << 16) for _ in range(16)]
                return len(blocks)
            with open(sys.argv[2], "w") as file:
                file.write(str(memtally.measure(work)[1].peak_memory_bytes))
            sys.exit()
        with tempfile.TemporaryDirectory() as folder:
            said = os.path.join(folder, "said")
            made = memtally.record([sys.executable, *sys.argv, said], output=os.path.join(folder, "recording"))
            print(json.dumps([int(open(said).read()), made.tally().place("host").total_bytes]))
        """, mib)
        assert measured > mib << 20
        assert abs(measured - recorded) <= max(recorded // 100, 1 << 20), (mib, measured, recorded)


def test_a_device_has_a_peak_of_this_process_that_no_sample_met():
    """The program sees the second of two devices, and takes 300 MiB and then 50 beside a context of 528. By the recorder."""
    told = package.answered("""
    import ctypes, json, sys, tempfile, memtally
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory() as folder:
            said, words = folder + "/said", [sys.executable, *sys.argv]
            memtally.record(["env", "CUDA_VISIBLE_DEVICES=1", *words, said], on=["24GiB", "H100-80GB"], output=folder + "/recording")
            print(open(said).read())
        sys.exit()
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    def take(mib):
        address = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) == 0
        return address
    def work():
        assert cuda.cuMemFree_v2(take(300)) == 0
        take(50)
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
    _, record = memtally.Measure(device=0, interval=1000)(work)
    _, same = memtally.Measure(device=sys.argv[2] if len(sys.argv) > 2 else "cuda:0", interval=1000)(work)
    with open(sys.argv[1], "w") as file:
        json.dump([record.device, record.method, record.peak_memory_bytes, record.growth_bytes, record.problem,
                   same.peak_memory_bytes], file)
    """)
    assert told == ["cuda:0", "driver", 828 << 20, 300 << 20, None, 878 << 20], told


def test_whatever_is_under_way_when_the_interpreter_ends_it_ends_as_it_would():
    ways = {"": 0, "sys.exit(3)": 3, "os._exit(4)": 4, "raise SystemExit(5)": 5, "os.kill(os.getpid(), 15)": -15}
    for way, status in ways.items():
        printed = package.said("""
        import atexit, os, sys, tempfile, threading, time
        import memtally
        from memtally.budgets import Budget
        tracker = memtally.Tracker("left open", interval=0.001)
        tracker.start("never stopped")
        memtally.Measure(method="sampled", interval=0.001).__enter__()
        Budget(file=os.path.join(tempfile.mkdtemp(), "budget")).reserve(host="1MiB")
        started = threading.Event()
        threading.Thread(target=memtally.measure, args=(lambda: (started.set(), time.sleep(1000)),), daemon=True).start()
        started.wait()
        atexit.register(lambda: print(memtally.measure(lambda: "measured at exit")[0], flush=True))
        """ + way, status=status)
        expected = "" if way.startswith("os.") else "measured at exit\n"
        assert printed == expected, (way, printed)


def test_a_table_of_generations_is_appended_to_by_several_processes():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.csv")
        script = os.path.join(folder, "generate.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("import memtally, sys\n"
                       "for _ in range(20):\n"
                       "    result, metrics = memtally.profile_generation(lambda text, **settings: settings, 'text',\n"
                       "        csv=sys.argv[1], steps=4, batch_size=int(sys.argv[2]))\n"
                       "    assert result == {'steps': 4, 'batch_size': int(sys.argv[2])}\n"
                       "    assert set(metrics) == {'latency_ms', 'peak_memory_bytes'}\n")
        started = [subprocess.Popen([package.program(), script, path, str(size)], env=package.clean()) for size in (1, 2, 3)]
        assert [process.wait() for process in started] == [0, 0, 0]
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    assert sorted(row["batch_size"] for row in rows) == sorted("123" * 20)
    assert all(row["steps"] == "4" and row["max_new_tokens"] == "" and int(row["peak_memory_bytes"]) > 0 for row in rows)


def test_a_file_that_is_no_such_table_is_refused_before_anything_runs():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "notes.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("name,age\n")
        told = package.said("""
            import memtally, sys
            try:
                memtally.profile_generation(lambda: print("ran"), csv=sys.argv[1])
            except memtally.Error as error:
                print(error.code)
        """, path)
        assert told == "MT_EFORMAT\n", told


def test_an_estimate_is_the_commands_own():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        command = package.program("memtally")
        package.ran([command, "sample-model", "-q", "--sparse", "llama-3.2-1b", model])
        words = ["estimate", "--no-rehearse", "--json", "--device", "24GiB,24GiB", "--context", "8192", model]
        expected = json.loads(package.ran([command, *words]))
        document, text, rows, fits, difference = package.answered("""
            import json, memtally, sys
            made = memtally.estimate(sys.argv[1], device=["24GiB", "24GiB"], context=8192, rehearse=False)
            other = memtally.estimate(sys.argv[1], device=["24GiB", "24GiB"], context=16384, rehearse=False)
            compared = memtally.compare(made, other).component("kv_cache")
            rows = [[place.place, row.category, row.bytes] for place in made for row in place.rows]
            assert "<table>" in made._repr_html_() and str(memtally.compare(made, other))
            print(json.dumps([made.json, str(made), rows, made.fits, [compared["a_bytes"], compared["b_bytes"]]]))
        """, model)
    assert document == expected
    assert fits and text.startswith("FITS: ")
    # 2 (K and V) * 16 layers * 8 heads * 64 values * 2 bytes for each of the tokens, over both devices.
    cache = 2 * 16 * 8 * 64 * 2
    assert sum(size for _, category, size in rows if category == "kv_cache") == cache * 8192, rows
    assert difference == [cache * 8192, cache * 16384], difference


OPTIONS = """
    import inspect, json, keyword, re, subprocess
    import memtally
    from memtally import command, places
    # What a function has of its own is none of the command's.
    offered = {"estimate": memtally.estimate, "rehearse": memtally.rehearse, "run": memtally.record, "compare": memtally.compare,
               "place": memtally.place}
    values = {"text": "a", "texts": ["a=b,c", "d"], "file": "f", "directory": "d", "size": "1GiB", "count": 1, "real": 1}
    passed, hidden = {}, []
    for name, function in offered.items():
        known = command.options(name)
        said = subprocess.run([places.command(), "help", name], capture_output=True, text=True, check=True).stdout
        assert set(known) == set(re.findall(r"^    (?:-., )?--([a-z0-9-]+)", said, re.MULTILINE)), name
        words, expected = [], []
        for option, takes in known.items():
            if option in command._NO_SETTINGS:
                continue
            setting = option.replace("-", "_")
            assert setting.isidentifier() and not keyword.iskeyword(setting), setting
            hidden += [f"{name}({setting}=)"] * (setting in inspect.signature(function).parameters)
            value = True if takes["takes"] == "nothing" else values.get(takes["takes"]) or takes["choices"][-1]
            made = command.options_of(name, {setting: value})
            assert len(made) == (2 if takes["takes"] == "texts" else 1), made
            if option.startswith("no-"):
                positive = option[len("no-"):]
                assert command.options_of(name, {positive: False}) == made and command.options_of(name, {setting: False}) == [], setting
                assert positive in known or command.options_of(name, {positive: True}) == [], setting
            words += made
        done = subprocess.run([places.command(), name, *words, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        passed[name] = len(words)
    for setting in ("json", "output", "format"):
        try:
            memtally.estimate("model", **{setting: "x"})
        except memtally.Error as error:
            assert "is no setting" in str(error), error
    flash = [command.options_of("estimate", {"flash_attn": is_on, "context": None}) for is_on in (True, False)]
    print(json.dumps([passed, hidden, flash]))
"""


def test_each_option_of_the_command_is_a_keyword_and_none_is_hidden():
    passed, hidden, flash = package.answered(OPTIONS)
    assert hidden == [] and flash == [["--flash-attn=on"], ["--flash-attn=off"]], (hidden, flash)
    assert all(n > 5 for n in passed.values()) and passed["rehearse"] > 50, passed


def test_several_estimates_come_in_one_answer():
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("f16.gguf", "q4_0.gguf")]
        for path, type_of_weights in zip(paths, ("f16", "q4_0"), strict=True):
            package.ran([package.program("memtally"), "sample-model", "-q", "--sparse", "llama-3.2-1b", "--type", type_of_weights, path])
        best, one, matrix, shown, sizes, swept, rows = package.answered("""
        import json, memtally, sys
        from memtally import documents
        settings = dict(device="2GiB", context=4096, rehearse=False)
        several = memtally.estimate(sys.argv[1:], best_quant=True, **settings)
        one = memtally.estimate(sys.argv[2], **settings)
        assert isinstance(several, memtally.Estimates) and several.places == one.places and several.verdict == one.verdict
        matrix = memtally.estimate(sys.argv[2], matrix=True, device="2GiB")
        assert not matrix.places and matrix.verdict is None and not matrix.fits
        swept = documents.estimate_of({"kind": "sweep", "points": [
            {"values": {"context": "2k", "ubatch": "512"}, "verdict": "FITS", "places": [
                {"place": "host", "total_allocated_bytes": 5 << 30}, {"place": "gpu:0", "total_allocated_bytes": 1 << 30},
                {"place": "gpu:1", "total_allocated_bytes": 2 << 30}]},
            {"values": {"context": "4k", "ubatch": "512"}, "verdict": "FAILED", "places": []}]})
        tried = []
        found = memtally.fit_batch(lambda batch: None, 4000, memtally.estimate(sys.argv[2], max_sequences=True, **settings),
                                   on_try=lambda batch, record: tried.append(batch))
        assert found == 4000, found
        print(json.dumps([several.json["answer"]["path"], len(several.points), len(matrix.points), str(matrix), tried[0], str(swept),
                          str(several).splitlines()]))
        """, *paths)
        answered = json.loads(package.ran([package.program("memtally"), "estimate", "--json", "--no-rehearse", "--max-sequences",
                                           "--device", "2GiB", "--context", "4096", paths[1]]))
    assert best == paths[1] and one == 2 and matrix > 3 and shown.splitlines()[0].split() == ["of", "place", "size", "verdict"], best
    assert sizes == answered["answer"]["value"], (sizes, answered["answer"])
    assert [line.split() for line in swept.splitlines()[1:]] == [
        ["context", "2k,", "ubatch", "512", "gpu:1", "2.00", "GiB", "FITS"], ["context", "4k,", "ubatch", "512", "?", "FAILED"]], swept
    assert any(line.startswith(paths[1]) for line in rows), rows


class Table(html.parser.HTMLParser):
    """The cells of a table by row, and whether each tag that is opened is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.caption, self.open = [], "", []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.open[-1] == "caption":
            self.caption += data


def test_a_notebook_shows_a_tally_as_the_table_that_it_prints():
    shown, printed, made, text = package.answered("""
    import json, memtally
    from memtally import documents
    block = bytearray(b"x") * (32 << 20)
    tally = memtally.tally()
    made = documents.html_table([("a", "b"), ("<b>&", "2 < 3")], "one & <two>")
    print(json.dumps([tally._repr_html_(), str(tally), made, tally.json]))
    """)
    assert Table(shown).rows == [re.split(r"  +", line) + [""] * (4 - len(re.split(r"  +", line))) for line in printed.splitlines()], shown
    parsed = Table(made)
    assert parsed.rows == [["a", "b"], ["<b>&", "2 < 3"]] and parsed.caption == "one & <two>", made
    (host,) = text["places"]
    assert host["total_resident_bytes"] >= 32 * MIB and host["rows"] == [], text


def test_what_stays_on_the_host_is_said_also_where_it_is_no_tensor():
    held, small = package.answered("""
    import array, collections, json, memtally, types
    registry = types.SimpleNamespace(cache={"a": [bytes(48 << 20)]})
    class Keeper:
        def __init__(self):
            self.numbers = array.array("d", [0]) * (3 << 20)
    keeper = Keeper()
    def step():
        mine = bytearray(40 << 20)
        return memtally.reset_host()
    def few():
        return memtally.reset_host(largest=1).held
    print(json.dumps([[[one.bytes >> 20, one.what, one.path] for one in step().held], [one.path for one in few()]]))
    """)
    assert held[:3] == [[48, "bytes", "__main__.registry.cache['a'][0]"], [40, "bytearray", "step():mine"],
                        [24, "array", "__main__.keeper.numbers"]], held
    assert small == ["__main__.registry.cache['a'][0]"], small


def test_what_goes_wrong_is_an_exception_with_the_commands_sentence():
    lines = package.said("""
        import memtally, pickle
        for call in (lambda: memtally.estimate("/none"), lambda: memtally.estimate("/none", bogus=1),
                     lambda: memtally.Measure(method="guessed"), lambda: memtally.Measure(device="cuda:x")(print),
                     lambda: memtally.Measure(interval=0)(print) if 0 else memtally.Measure(interval=1e-9)(print)):
            try:
                call()
            except memtally.Error as error:
                copy = pickle.loads(pickle.dumps(error))
                assert (type(copy), str(copy)) == (type(error), str(error))
                print(type(error).__name__, error)
    """).splitlines()
    assert lines[0] == "NotFound /none: No such file or directory"
    assert lines[1].startswith("ArgumentError estimate: unknown option '--bogus'")
    assert [line.split()[0] for line in lines[2:]] == ["ArgumentError"] * 3, lines


# Prints which module the name memtally is, and whether what memtally puts into programs is there.
NAMES = """
    import json, sys
    helped = "_memtally_helper" in sys.modules
    try:
        import memtally
        where = memtally.__file__
    except ImportError:
        where = None
    print(json.dumps([helped, where, "memtally" in sys.modules]))
"""


def test_a_recorded_program_imports_the_package_that_is_installed_beside_it():
    own = os.path.join(package.packages(), "memtally", "__init__.py")
    commands = [package.program("memtally")]
    if "MEMTALLY_WHEEL" not in os.environ:  # the build's own wants libraries of the system, which only builders have
        commands.append(package.built("src", "cli", "memtally"))
    for command in commands:
        with tempfile.TemporaryDirectory() as folder:
            before = [command, "run", "-q", "-o", os.path.join(folder, "recording"), "--"]
            assert package.answered(NAMES, before=before) == [True, own, True], command


def test_a_recorded_program_without_the_package_finds_none():
    with tempfile.TemporaryDirectory() as folder:
        empty = os.path.join(folder, "empty")
        package.ran([package.program(), "-m", "venv", "--without-pip", empty])
        code = os.path.join(folder, "names.py")
        with open(code, "w", encoding="utf-8") as file:
            file.write("\n".join(line[4:] for line in NAMES.splitlines()))
        command = [package.program("memtally"), "run", "-q", "-o", os.path.join(folder, "recording"), "--"]
        told = package.ran([*command, os.path.join(empty, "bin", "python"), code])
    assert json.loads(told) == [True, None, False]


def test_estimates_within_a_recorded_program_are_no_part_of_the_recording():
    with tempfile.TemporaryDirectory() as folder:
        model, recording = os.path.join(folder, "model.gguf"), os.path.join(folder, "recording")
        command = package.program("memtally")
        package.ran([command, "sample-model", "-q", "--sparse", "llama-3.2-1b", model])
        before = [command, "run", "-q", "-o", recording, "--"]
        package.said("import memtally, sys; print(memtally.estimate(sys.argv[1], rehearse=False))", model, before=before)
        report = json.loads(package.ran([command, "report", "--json", recording]))
    observed = {os.path.basename(one["command"].split()[0]): one["observed"] for one in
                [*report["processes"], *report.get("other_processes", [])]}
    assert observed.get("memtally", "outside") == "outside", observed


def test_a_recorded_program_says_what_its_memory_is_for():
    with tempfile.TemporaryDirectory() as folder:
        program, recording = os.path.join(folder, "program.py"), os.path.join(folder, "recording")
        with open(program, "w", encoding="utf-8") as file:
            file.write("import memtally\n"
                       "with memtally.scope('kv_cache', 'my cache'):\n"
                       "    cache = bytearray(b'x' * 1) * (32 << 20)\n"
                       "weights = bytearray(b'x' * 1) * (48 << 20)\n"
                       "memtally.label(weights, 'weights', 'my weights')\n"
                       "memtally.mark('ready')\n"
                       "more = bytearray(b'x' * 1) * (16 << 20)\n")
        told = package.answered("""
            import json, memtally, sys
            recording = memtally.record([sys.executable, sys.argv[1]], output=sys.argv[2])
            tally = recording.tally("heap-peak")
            host = tally.place("host")
            adds_up = sum(row.bytes for row in host.rows) + host.unattributed_bytes == host.total_bytes
            print(json.dumps([recording.status, *(host.row(name).allocated_bytes for name in ("kv_cache", "weights")), adds_up]))
        """, program, recording)
        status, cache, weights, adds_up = told
    # A block has a page more than was asked for, as malloc() rounds it with its own header.
    assert status == 0 and adds_up
    assert 32 * MIB <= cache <= 32 * MIB + 8192 and 48 * MIB <= weights <= 48 * MIB + 8192, told


def test_in_a_program_that_is_not_recorded_saying_so_costs_nothing():
    told = package.said("""
        import memtally
        with memtally.scope("kv_cache"):
            memtally.label(bytearray(10), "weights")
            memtally.mark("here")
        for call in (memtally.record, lambda: memtally.scope("cash"), lambda: memtally.label(bytearray(1), "cash")):
            try:
                call()
            except memtally.Error as error:
                print(error.code)
    """)
    assert told.split() == ["MT_ENOTFOUND", "MT_EARG", "MT_EARG"], told


def test_an_exception_of_fit_batch_holds_nothing_also_where_a_library_hides_its_frames():
    names, alive = package.answered("""
        import json, traceback, weakref
        import memtally

        class Block:
            pass

        blocks = []

        def make():
            block = Block()
            blocks.append(weakref.ref(block))
            return block

        def inner(batch):
            mine = make()
            raise MemoryError

        def wrapper(batch):
            mine = make()
            inner(batch)

        def run(batch):
            mine = make()
            try:
                wrapper(batch)
            except MemoryError as error:
                for frame, _ in traceback.walk_tb(error.__traceback__):
                    frame.f_locals  # looked at, as pytest does
                raise error.with_traceback(error.__traceback__.tb_next.tb_next)

        try:
            memtally.fit_batch(run, 1)
        except MemoryError as error:
            names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            print(json.dumps([names, [block() is not None for block in blocks]]))
    """)
    assert "inner" in names and "wrapper" not in names and alive == [False] * 3, (names, alive)


def test_every_largest_batch_is_found_whatever_the_first_try():
    wrong = package.answered("""
        import json
        import memtally

        def found(limit, upper, start):
            def run(batch):
                if batch > limit:
                    raise MemoryError
            return memtally.fit_batch(run, upper, start)
        cases = [(limit, upper, start) for upper in (1, 2, 3, 7, 12) for limit in range(1, upper + 1) for start in range(1, upper + 1)]
        print(json.dumps([case for case in cases if found(*case) != case[0]]))
    """)
    assert wrong == [], wrong


def test_the_largest_batch_on_the_host_is_found_without_trying_what_would_not_fit():
    found, tries, upper = package.answered("""
        import json, resource
        import memtally

        def run(batch):
            return bytearray(batch * (16 << 20))

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (400 << 20), resource.RLIM_INFINITY))
        tries = []
        found = memtally.fit_batch(run, 4096, on_try=lambda batch, record: tries.append([batch, record is not None]))
        print(json.dumps([found, tries, memtally.fit_batch(run, 3)]))
    """)
    # 400 MiB are 25 blocks of 16 MiB, less what the interpreter maps meanwhile.
    assert 8 <= found <= 25 and [found, True] in tries and [found + 1, False] in tries and upper == 3, (found, tries)


if __name__ == "__main__":
    tap.main({**globals(), **vars(test_pooling), **vars(test_tracker), **vars(test_monitor)})
