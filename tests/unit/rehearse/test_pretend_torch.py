#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The helper in rehearsed Python programs, with modules in PyTorch's place: what it writes, that it
never gets in the way, and that it costs nothing where there is no PyTorch."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import types

import tap

PACKAGES = os.environ["PYTHON_PACKAGES"]
HELPER = os.path.join(PACKAGES, "memtally", "site")
sys.path.insert(0, PACKAGES)
sys.dont_write_bytecode = True

from memtally.pretend import kernels, lengths, libraries, tuners  # noqa: E402
from memtally.watch import allocator, figures, graphs, hooks, phases, tables, tensors, trace  # noqa: E402


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield path


def lines_of(path):
    found = []
    for name in sorted(os.listdir(path)):
        if name.startswith("torch-"):
            with open(os.path.join(path, name), encoding="utf-8") as file:
                found += file.read().splitlines()
    return found


def started(path, code, flags, environment):
    with open(os.path.join(path, "program.py"), "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(code))
    command = [sys.executable, *flags, os.path.join(path, "program.py")]
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def python(path, code, *flags, **variables):
    """Runs a program as a rehearsal does; its own folder comes after the helper's."""
    environment = dict(os.environ, PYTHONPATH=HELPER + os.pathsep + path, PYTHONDONTWRITEBYTECODE="1")
    environment["MEMTALLY_REHEARSAL"] = os.path.join(path, "account")
    return started(path, code, flags, dict(environment, **variables))


def python_without_us(path, code, *flags, **variables):
    environment = dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    return started(path, code, flags, dict(environment, **variables))


def module(path, name, code):
    full = os.path.join(path, *name.split("."))
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full + ".py", "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(code))


def entry(action, address=0, size=0, time_us=2_000_000):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us}


def history(path):
    return allocator.History(trace.Trace(path), types.SimpleNamespace())


def taken(path, *snapshots):
    """The lines of snapshots, whose clocks are: 1 s since the machine started, 1001 s with dates."""
    reader = history(path)
    for snapshot in snapshots:
        reader.take({"segments": [], **snapshot}, 1_000_000_000, 1001_000_000_000)
    reader.trace.flush()
    return [line for line in lines_of(path) if line[0] not in "mc"]


def test_a_program_without_pytorch_leaves_no_trace_and_loads_nothing_of_ours():
    with folder() as path:
        code, said = python(path, """
            import json, sys
            print([name for name in sys.modules if name.startswith("_memtally_helper.")])
        """)
        assert code == 0, said
        assert not {"_memtally_helper.watch.session", "_memtally_helper.pretend.integers", "_memtally_helper.watch.allocator"} & set(eval(said)), said
        assert lines_of(path) == []


def test_without_a_rehearsal_nothing_is_watched():
    with folder() as path:
        for variables in ({"MEMTALLY_REHEARSAL": ""}, {"MEMTALLY_NO_HELPER": "1"}):
            code, said = python(path, "import sys; print('_memtally_helper' in sys.modules)", **variables)
            assert (code, said) == (0, "False\n"), said


def test_the_users_own_sitecustomize_runs_and_has_the_name():
    with folder() as path:
        module(path, "sitecustomize", "import os; MINE = 7; os.environ['MINE'] = '7'")
        code, said = python(path, "import os, sitecustomize; print(os.environ['MINE'], sitecustomize.MINE)")
        assert (code, said) == (0, "7 7\n"), said


def test_a_helper_that_fails_does_not_stop_the_program():
    with folder() as path:
        module(path, "torch", "raise_later = 1")
        code, said = python(path, "import torch; print(torch.raise_later)")
        assert (code, said) == (0, "1\n"), said
        notes = [line for line in lines_of(path) if line.startswith("n ")]
        assert notes and "gave up" in notes[0], notes


def test_a_module_that_cannot_be_imported_fails_as_without_us():
    with folder() as path:
        module(path, "torch", "raise ValueError('as without us')")
        code, said = python(path, """
            try:
                import torch
            except ValueError as error:
                print(error)
        """)
        assert (code, said) == (0, "as without us\n"), said


def test_the_loader_of_a_watched_module_stays_what_it_is():
    with folder() as path:
        module(path, "torch", "answer = 42")
        code, said = python(path, """
            import importlib.machinery, inspect, torch
            print(type(torch.__loader__) is importlib.machinery.SourceFileLoader, "answer" in inspect.getsource(torch))
            print("exec_module" in vars(torch.__loader__))
        """)
        assert (code, said) == (0, "True True\nFalse\n"), said


def test_allocations_are_written_with_the_time_since_the_machine_started():
    with folder() as path:
        entries = [entry("segment_alloc", 0x7000, 2097152, 1001_000_000), entry("alloc", 0x7000, 100, 1001_000_250)]
        entries += [entry("free_requested", 0x7000, 100), entry("free_completed", 0x7000, 100, 1001_000_500)]
        entries.append(entry("segment_free", 0x7000, 2097152, 1001_001_000))
        assert taken(path, {"device_traces": [[], entries]}) == [
            "s 1 1000000000 7000 2097152",
            "a 1 1000250000 7000 100",
            "f 1 1000500000 7000",
            "e 1 1001000000 7000",
        ]


def test_what_was_drained_before_is_not_written_again():
    with folder() as path:
        first = [entry("alloc", 0x7000, 512, 1001_000_001), entry("alloc", 0x7200, 512, 1001_000_001)]
        again = first + [entry("alloc", 0x7400, 512, 1001_000_001)]
        lines = taken(path, {"device_traces": [first]}, {"device_traces": [again]})
        assert [line.split()[3] for line in lines] == ["7000", "7200", "7400"], lines


def test_the_calls_that_ran_out_are_told_without_ours_and_pytorchs():
    """As exec() names a file; a call of PyTorch's lies between."""
    def innermost():
        seen.append(allocator.stack_of(sys._getframe(0), "/venv/torch/"))

    def compiled(path, code, **names):
        exec(compile(textwrap.dedent(code), path, "exec"), names)  # pylint: disable=exec-used
        return names

    seen = []
    within = compiled("/venv/torch/nn/module.py", "def call(f): f()", torch=None)["call"]
    program = compiled("/srv/train.py", """
        def step():
            call(ask)
        """, call=within, ask=innermost)
    program["step"]()
    calls = seen[0].split(" < ")
    assert calls[0].endswith("innermost") and calls[1] == "train.py:3 step", calls
    assert len(calls) == allocator.FRAMES and "test_pretend_torch.py" in calls[2], calls


def test_a_part_of_an_expandable_segment_is_unmapped():
    with folder() as path:
        mib = 1 << 20
        entries = [entry("segment_map", 0, 60 * mib), entry("segment_unmap", 20 * mib, 20 * mib)]
        lines = [line.split()[0::3] + line.split()[4:] for line in taken(path, {"device_traces": [entries]})]
        assert lines == [["s", "0", str(60 * mib)], ["e", "0"], ["s", "0", str(20 * mib)], ["s", "%x" % (40 * mib), str(20 * mib)]], lines


def test_ranges_keep_what_was_not_unmapped():
    ranges = allocator.Ranges()
    for start in (0, 10, 20, 30):
        ranges.add(start, 10)
    gone, left = ranges.remove(5, 20)
    assert gone == [0, 10, 20] and left == [(0, 5), (25, 5)], (gone, left)
    assert ranges.within(0, 100) == [0, 25, 30]


def test_private_pools_and_blocks_with_a_rest_are_told_once():
    with folder() as path:
        blocks = [{"size": 1536, "requested_size": 600, "state": "active_allocated"}, {"size": 512, "requested_size": 0, "state": "inactive"}]
        blocks.append({"size": 1024, "requested_size": 1000, "state": "active_allocated"})
        segment = {"address": 0x9000, "device": 0, "total_size": 2097152, "segment_pool_id": (0, 3), "blocks": blocks}
        snapshot = {"device_traces": [[]], "segments": [segment]}
        assert taken(path, snapshot, snapshot) == ["p 9000", "r 9000 1536"]


def test_a_private_pool_is_told_of_as_long_as_graphs_are_in_it():
    with folder() as path:
        reader, own = history(path), graphs.Graphs(trace.Trace(path), types.SimpleNamespace())
        reader.end_of_pool = own.end_of
        segments = [{"address": at, "device": 0, "total_size": 2097152, "segment_pool_id": pool, "blocks": []}
                    for at, pool in ((0x1000, (0, 1)), (0x2000, (0, 2)), (0x3000, (5, 0)))]

        def told():
            lines = []
            for segment in segments:
                reader._take_segment(segment, lines)
            return [re.sub("q [0-9]+", "q TIME", line) for line in lines]

        assert told() == ["p 3000"]  # PyTorch's own name: of a capture that goes on
        for number, pool in ((1, (0, 2)), (2, (0, 2)), (3, (5, 0))):
            own.living[number], own.pool_of[number] = object(), pool
            own._expect(pool).add(number)
        assert told() == ["p 2000"]
        own._gone(1)
        own._gone(3)
        assert told() == ["q TIME 3000"]
        own._gone(2)
        assert told() == ["q TIME 2000"] and told() == []
        own._expect((0, 2))  # captured in again
        assert told() == ["p 2000"]


def test_phases_begin_and_end_around_a_function_and_its_errors():
    with folder() as path:
        writer = trace.Trace(path)
        phases.history = phases.after = None

        def fails():
            raise KeyError("the program's own")

        wrapped = phases.around(writer, "weights", "load_model")(fails)
        try:
            wrapped()
            raise AssertionError("the error is gone")
        except KeyError:
            pass
        words = [line.split() for line in lines_of(path)[1:]]
        assert [word[0] for word in words] == ["b", "d"] and words[0][3:] == ["weights", "load_model"], words
        assert words[0][2] == words[1][2] and int(words[0][1]) <= int(words[1][1])


def test_when_no_phase_is_open_any_more_it_is_known_which_there_were():
    with folder() as path:
        writer, told = trace.Trace(path), []
        phases.history, phases.after = None, lambda categories: told.append(sorted(categories))
        try:
            weights, capture = phases.begin(writer, "weights", "load"), phases.begin(writer, "graphs", "capture")  # of two threads
            phases.end(writer, weights)
            assert told == [], told
            phases.end(writer, capture)
            phases.end(writer, phases.begin(writer, "activations", "step"))
        finally:
            phases.after = None
        assert told == [["graphs", "weights"], ["activations"]], told


def test_a_child_waits_for_no_thread_of_its_parents():
    with folder() as path:
        writer, told = trace.Trace(path), []
        phases.history, phases.after = None, told.append
        load = phases.begin(writer, "weights", "load")
        other = threading.Thread(target=phases.begin, args=(writer, "graphs", "capture"))
        other.start()
        other.join()
        with phases._lock:
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)  # ends a child that waits
                phases.end(writer, load)
                os._exit(0 if told == [{"weights"}] else 1)
        phases.after = None
        phases.open_phases.clear()
        assert os.waitpid(pid, 0)[1] == 0


def test_a_phase_that_is_entered_without_end_is_noted_a_number_of_times_only():
    with folder() as path:
        writer = trace.Trace(path)
        calls = []
        step = phases.around(writer, "activations", "execute_model")(lambda: calls.append(1))
        for _ in range(phases.MOST_TIMES + 50):
            step()
        assert len(calls) == phases.MOST_TIMES + 50
        assert sum(line.startswith("b ") for line in lines_of(path)) == phases.MOST_TIMES


def test_methods_class_methods_and_functions_are_wrapped_and_coroutines_left_alone():
    class Model:
        @classmethod
        def from_pretrained(cls, name):
            return cls, name

        async def serve(self):
            return 1

    holder = types.SimpleNamespace(Model=Model)
    seen = []

    def make(function):
        def around(*args, **kwargs):
            seen.append(function.__name__)
            return function(*args, **kwargs)

        return around

    assert hooks.replace(holder, "Model.from_pretrained", make)
    assert Model.from_pretrained("a") == (Model, "a") and seen == ["from_pretrained"]
    assert not hooks.replace(holder, "Model.serve", make)
    assert not hooks.replace(holder, "Model.absent", make)
    assert not hooks.replace(holder, "Absent.method", make)


def test_rows_hold_in_their_versions():
    row = tables.Phase("vllm", "0.8.2", "0.11", "m", "f", "weights", "n")
    assert not tables.holds(row, tables.version_of("0.8.1"))
    assert tables.holds(row, tables.version_of("0.8.2"))
    assert tables.holds(row, tables.version_of("0.9.0.1"))
    assert not tables.holds(row, tables.version_of("0.11.1"))
    assert tables.holds(row, ()), "a version that is not known"
    assert tables.version_of("0.11.0rc2+cu128") == (0, 11, 0)


def test_the_tables_name_categories_that_there_are():
    with open(os.environ["CATEGORIES"], encoding="utf-8") as file:
        known = set(re.findall(r'X\(\w+, \d+, "(\w+)"', file.read()))
    assert len(known) > 9 and {row.category for row in tables.phases()} <= known, known


def test_figures_of_logs_as_published():
    figures._read_tables()
    found = figures.in_line("vllm", "Model loading took 14.9889 GiB and 6.310866 seconds")
    assert found == [("14.9889", "GiB", "weights")], found
    assert figures.in_line("vllm", "GPU KV cache size: 420,864 tokens") == [("420864", "tokens", "kv cache tokens")]
    assert figures.in_line("vllm", "Graph capturing finished in 21 secs, took 0.54 GiB") == [("0.54", "GiB", "graphs")]
    assert figures.in_line("vllm", "Available KV cache memory: 51.38 GiB") == [("51.38", "GiB", "kv cache")]
    line = "Load weight end. elapsed=5.43 s, type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.41 GB, mem usage=15.08 GB."
    assert figures.in_line("sglang", line) == [("15.08", "GiB", "weights")]
    line = "KV Cache is allocated. #tokens: 403872, K size: 24.65 GB, V size: 24.65 GB"
    assert {(value, name) for value, _, name in figures.in_line("sglang", line)} == {
        ("403872", "kv cache tokens"), ("24.65", "kv cache keys"), ("24.65", "kv cache values")}
    assert figures.in_line("other", "Model loading took 1 GiB") == []


def test_the_names_and_units_of_figures_are_those_of_the_formats():
    with open(os.environ["FORMATS"], encoding="utf-8") as file:
        rows = [line for line in file if line.startswith(("| `name` | phase, figure", "| `unit` | figure"))]
    named, units = (set(re.findall(r'"([^"]+)"', row)) for row in rows)
    assert {row.name for row in tables.figures()} == named, named
    assert {row.unit for row in tables.figures()} == units - {"GB"}, units


def test_figures_of_attributes_are_bytes():
    with folder() as path:
        figures._read_tables()
        worker = types.SimpleNamespace(model_runner=types.SimpleNamespace(model_memory_usage=16060522496))
        figures.from_attributes(trace.Trace(path), "vllm", "load_model", worker)
        assert lines_of(path)[1].split()[2:] == ["16060522496", "B", "weights"]
        figures.from_attributes(trace.Trace(path), "sglang", "load_model", types.SimpleNamespace(weight_load_mem_usage=15.037109375))
        assert lines_of(path)[-1].split()[2:] == ["16145973248", "B", "weights"]


def test_autotuners_are_told_the_same_time():
    assert tuners._same(0.0123) == 1.0
    assert tuners._same([0.5, 0.6, 0.7]) == [1.0, 1.0, 1.0]
    assert tuners._same(float("inf")) == float("inf"), "what cannot run stays so"
    with folder() as path:
        timed = tuners._even(trace.Trace(path))(lambda: 0.25)
        assert timed() == 1.0 and timed() == 1.0
        assert sum("Autotuners" in line for line in lines_of(path)) == 1


def test_compiled_kernels_with_a_runtime_of_their_own_are_not_called():
    class Compiled:
        def __init__(self):
            self.is_compiled = True

        def __call__(self, *tensors):
            raise RuntimeError("named symbol not found")

    name = "cutlass.cutlass_dsl.tvm_ffi_provider"
    sys.modules[name] = types.SimpleNamespace(__name__=name, __spec__=None, TVMFFIJitCompiledFunctionWithKwargs=Compiled)
    try:
        with folder() as path:
            writer = trace.Trace(path)
            kernels.start(hooks.Watch(writer), writer)
            kernel = Compiled()
            assert kernel.is_compiled and kernel(1, 2) is None and kernel() is None
            assert sum("not called" in line for line in lines_of(path)) == 1, lines_of(path)
    finally:
        del sys.modules[name]


def loaded(name, **members):
    """A module of that name as the helper leaves it, and the lines of its trace."""
    sys.modules[name] = types.SimpleNamespace(__name__=name, __spec__=None, **members)
    try:
        with folder() as path:
            writer = trace.Trace(path)
            kernels.start(hooks.Watch(writer), writer)
            module = sys.modules[name]
            yield module
            module.notes = [line for line in lines_of(path) if "left out" in line]
    finally:
        del sys.modules[name]


def test_kernels_that_sglang_would_compile_are_left_out():
    """Those of CUDA that only compute: what runs on the host or makes something known is really compiled."""
    compiled = lambda *args, **how: "compiled"
    for module in loaded("sglang.kernels.jit.utils.compile.loader", load_jit=compiled):
        rope = module.load_jit("rope", "true", cuda_files=["rope.cuh"], cuda_wrappers=[("run_rope", "Rope<true>::run")])
        assert rope.run_rope(1, 2) is None and rope.run_rope.default(3) is None
        assert module.load_jit("norm", cuda_files=["norm.cuh"]).run() is None
        assert module.load_jit("ngrams", cpp_files=["ngrams.cpp"]) == "compiled"
        exports = [("register_once", "register_manager")]
        assert module.load_jit("ipc", cuda_files=["ipc.cuh"], cuda_wrappers=exports) == "compiled"
        exports = [("all_reduce", "AllReduce::run")]
        assert module.load_jit("sum", cuda_files=["sum.cuh"], cuda_wrappers=exports) == "compiled"
        exports = [("run", "Norm::run"), ("get_max_occupancy", "Norm::get_max_occupancy")]
        assert module.load_jit("norm", cuda_files=["norm.cuh"], cuda_wrappers=exports) == "compiled"
    assert len(module.notes) == 1, module.notes


def test_kernels_that_flashinfer_would_compile_are_left_out():
    """Those that came compiled are there."""

    class JitSpec:
        def __init__(self, is_aot=False, aot_path="/nonexistent"):
            self.is_aot = is_aot
            self.aot_path = pathlib.Path(aot_path)

        def build_and_load(self, class_name=None):
            return "loaded"

    for module in loaded("flashinfer.jit.core", JitSpec=JitSpec):
        assert JitSpec(is_aot=True).build_and_load() == "loaded"
        assert JitSpec(aot_path=__file__).build_and_load() == "loaded", "as versions until 0.3 say it"
        assert JitSpec().build_and_load(class_name="Runner") == "loaded"
        kernels_of_attention = JitSpec().build_and_load()
        assert kernels_of_attention.softmax() is None
        assert kernels_of_attention.plan(1) is not None, "FlashInfer asserts that it has planned"
        assert kernels_of_attention.plan.default(1) is not None and kernels_of_attention.run.default(1) is None


def test_a_runtime_that_a_wheel_brought_along_is_not_taken():
    """The folder of the C library, which is loaded here, stands for that of the look-alikes."""
    own = next(line.split()[-1] for line in open("/proc/self/maps", encoding="utf-8") if "/libc.so" in line)
    name = "sglang.srt.distributed.device_communicators.cuda_wrapper"
    sys.modules[name] = types.SimpleNamespace(
        __name__=name, __spec__=None, find_loaded_library=lambda name: f"/wheel.libs/{name}.1234.so.12"
    )
    try:
        with folder() as path:
            os.symlink(os.path.dirname(own), os.path.join(path, "cuda"))
            libraries.start(hooks.Watch(trace.Trace(path)), os.path.join(path, "account"))
            find = sys.modules[name].find_loaded_library
            assert find("libc.so") == own
            assert find("libcudart") == "/wheel.libs/libcudart.1234.so.12", "the folder has none that is loaded"
    finally:
        del sys.modules[name]


def test_what_is_as_long_as_a_sum_on_the_device_is_counted_on_the_host():
    """Counts of 2 and 3 are read back, and the five places go to where the counts were."""

    class Tensor(list):
        is_cuda = True
        device = "cuda:1"

        def cpu(self):
            host = Tensor(self)
            host.is_cuda = False
            return host

        def to(self, device):
            self.placed = device
            return self

    def _offsets_to_doc_ids_tensor(offsets):
        assert not offsets.is_cuda
        counts = [b - a for a, b in zip(offsets, offsets[1:])]
        return Tensor(i for i, n in enumerate(counts) for _ in range(n))

    name = "vllm.v1.attention.backends.flex_attention"
    with folder() as path:
        for module in loaded(name, _offsets_to_doc_ids_tensor=_offsets_to_doc_ids_tensor):
            lengths.start(hooks.Watch(trace.Trace(path)))
            found = module._offsets_to_doc_ids_tensor(Tensor([0, 2, 5]))
    assert found == [0, 0, 1, 1, 1] and found.placed == "cuda:1", found


def test_a_length_that_was_read_from_the_device_is_that_of_the_shape():
    """The check is FlashInfer's, with its names: a plan reads the length, a run compares it."""

    class Wrapper:
        def plan(self, lengths):
            self._qo_indptr_last = int(lengths[-1])

        begin_forward = plan

        def run(self, n_queries):
            if n_queries != self._qo_indptr_last:
                raise ValueError(f"q.shape[0] does not match {self._qo_indptr_last}")
            return self._qo_indptr_last + 1

    name = "flashinfer.prefill"
    sys.modules[name] = types.SimpleNamespace(__name__=name, __spec__=None, BatchPrefillWithRaggedKVCacheWrapper=Wrapper)
    try:
        with folder() as path:
            lengths.start(hooks.Watch(trace.Trace(path)))
            for plan in (Wrapper.plan, Wrapper.begin_forward):
                wrapper = Wrapper()
                plan(wrapper, [0, 0])
                assert wrapper.run(3) == 1
    finally:
        del sys.modules[name]


def test_kernels_that_deepgemm_would_compile_are_left_out():
    for module in loaded("deep_gemm.jit.compiler", build=lambda name, code, runtime, kwargs=None: "compiled"):
        assert module.build("fp8_gemm", "", object)(shape=1) is None


def test_each_process_has_a_trace_of_its_own():
    with folder() as path:
        writer = trace.Trace(path)
        writer.say("the parent")
        child = os.fork()
        if not child:
            writer.say("the child")
            os._exit(0)
        os.waitpid(child, 0)
        names = [name for name in os.listdir(path) if name.endswith(".trace")]
        assert sorted(names) == sorted(["torch-%d.trace" % os.getpid(), "torch-%d.trace" % child]), names


def test_a_folder_that_cannot_be_written_is_no_trouble():
    writer = trace.Trace("/nonexistent")
    writer.say("nothing")
    writer.line("a", 1)
    writer.flush()


def test_a_note_is_one_line():
    with folder() as path:
        trace.Trace(path).say("two\nlines")
        assert len(lines_of(path)) == 2


class Tensor:
    """As much of a tensor as holders look at."""

    def __init__(self, address, grad=None):
        self.device = types.SimpleNamespace(type="cuda")
        self.address = address
        self.grad = grad
        self.is_leaf = True
        self.is_cpu = False

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address)


class Module:
    def __init__(self, parameters, buffers):
        self._parameters = parameters
        self._buffers = buffers


def holders(path):
    fake = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(is_initialized=lambda: True))
    reader = allocator.History(trace.Trace(path), fake)
    return tensors.Holders(reader.trace, fake, reader)


def told(path):
    return [tuple(line.split(" ", 4)[2:]) for line in lines_of(path) if line.startswith("h ")]


def test_modules_say_what_their_tensors_are_for():
    with folder() as path:
        found = holders(path)
        one = Module({"weight": Tensor(0x1000, grad=Tensor(0x2000)), "bias": None}, {"mask": Tensor(0x3000)})
        found._registration("parameters")(one, "weight", Tensor(0x1000))
        found.look()
        found.look()
        found.trace.flush()
        assert told(path) == [("1000", "weights", "parameters"), ("2000", "training", "gradients"), ("3000", "weights", "buffers")]


def test_a_module_is_not_kept_alive():
    with folder() as path:
        found = holders(path)
        one = Module({"weight": Tensor(0x1000)}, {})
        found._registration("parameters")(one, "weight", Tensor(0x1000))
        del one
        found.look()
        assert not found.modules


def test_a_block_that_was_freed_is_told_again():
    with folder() as path:
        found = holders(path)
        found.tell(Tensor(0x1000), "training", "gradients")
        found._forget([0x1000])
        found.tell(Tensor(0x1000), "training", "gradients")
        found.trace.flush()
        assert len(told(path)) == 2


def test_the_optimizers_state_is_told_after_a_step():
    with folder() as path:
        found = holders(path)
        weight = Tensor(0x1000, grad=Tensor(0x2000))
        optimizer = types.SimpleNamespace(param_groups=[{"params": [weight]}], state={weight: {"exp_avg": Tensor(0x4000), "step": 1.0}})
        found._before_step(optimizer, (), {})
        found._after_step(optimizer, (), {})
        found.trace.flush()
        assert told(path)[1:] == [("2000", "training", "gradients"), ("4000", "training", "optimizer state")], told(path)


def test_gradients_are_told_at_each_step_for_they_have_the_addresses_of_the_last_ones():
    with folder() as path:
        found = holders(path)
        weight = Tensor(0x1000, grad=Tensor(0x2000))
        optimizer = types.SimpleNamespace(param_groups=[{"params": [weight]}], state={})
        for _ in range(3):
            found._before_step(optimizer, (), {})
        found.trace.flush()
        assert told(path) == [("1000", "weights", "parameters")] + 3 * [("2000", "training", "gradients")], told(path)


# As much of PyTorch as tells of its allocator; allocate() is of the device.
TORCH = """
    import time, types

    __version__ = "2.9.1"
    entries = []

    def allocate(size):
        entries.append({"action": "alloc", "addr": size, "size": size, "time_us": time.time_ns() // 1000})

    def statistics(device):
        return {"allocation": {"all": {"allocated": len(entries), "freed": 0}}}

    def snapshot():
        return {"device_traces": [list(entries)], "segments": []}

    _C = types.SimpleNamespace(_cuda_getDeviceCount=lambda: 1, _cuda_memoryStats=statistics)
    memory = types.SimpleNamespace(_snapshot=snapshot, _record_memory_history=lambda *args, **kwargs: None)
    cuda = types.SimpleNamespace(memory=memory, _lazy_call=lambda call: call(), is_initialized=lambda: True)
"""


def allocated(path):
    """The sizes that all processes told."""
    return sorted(int(line.split()[4]) for line in lines_of(path) if line.startswith("a "))


def ended(end, before="import os, sys, torch; torch.allocate(512)"):
    """How a program that has allocated ends, and what it told of that."""
    with folder() as path:
        module(path, "torch", TORCH)
        code, said = python(path, before + "\n" + end, MEMTALLY_NO_SMALL_RESULTS="1")
        return code, allocated(path), said


def test_what_was_allocated_last_is_told_however_a_program_ends():
    again = "[sys.executable, '-c', 'raise SystemExit(5)']"
    ends = {"": 0, "sys.exit(3)": 3, "raise KeyError": 1, "os._exit(4)": 4, "os.abort()": -signal.SIGABRT}
    ends.update({f"os.execv(sys.executable, {again})": 5, f"os.execvpe(sys.executable, {again}, os.environ)": 5})
    for end, wanted in ends.items():
        code, told_sizes, said = ended(end)
        assert (code, told_sizes) == (wanted, [512]), (end, code, told_sizes, said)


def test_what_is_allocated_at_the_very_end_is_told():
    code, told_sizes, said = ended("import atexit; atexit.register(torch.allocate, 1024)")
    assert (code, told_sizes) == (0, [512, 1024]), (code, told_sizes, said)


def test_a_child_that_multiprocessing_ends_has_told_all():
    code, told_sizes, said = ended("""
import multiprocessing
def work():
    import torch
    torch.allocate(2048)
child = multiprocessing.get_context("fork").Process(target=work)
child.start(); child.join()
sys.exit(child.exitcode)""", before="import sys")
    assert (code, told_sizes) == (0, [2048]), (code, told_sizes, said)


def test_a_program_that_waits_has_told_all_before_a_signal_ends_it():
    code, told_sizes, said = ended("""
import glob, signal, time
folder = os.path.dirname(os.environ["MEMTALLY_REHEARSAL"])
for _ in range(1200):
    if any(" 512\\n" in open(name).read() for name in glob.glob(folder + "/*.trace")):
        break
    time.sleep(0.05)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)""")
    assert (code, told_sizes, said) == (-signal.SIGTERM, [512], "True\n"), (code, told_sizes, said)


def test_a_last_look_that_fails_does_not_change_how_a_program_ends():
    code, told_sizes, said = ended("torch.memory._snapshot = None; os._exit(7)")
    assert (code, told_sizes, said) == (7, [], ""), (code, told_sizes, said)


# Programs that say what they see of how Python was started; of children, %s is the way to start them.
PLAIN = """
    import json, os, sys
    print(sys.path, sorted(sys.flags), sys.argv, len(sys.meta_path) > 2)
    print(os.environ.get("MINE"), "sitecustomize" in sys.modules)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", "import sys; print('again'); sys.exit(9)"])
"""
CHILDREN = """
    import multiprocessing, os, sys

    def work(number):
        print(number, os.environ.get("MINE"))
        sys.stdout.flush()
        if number == 3:
            os._exit(33)
        sys.exit(number)

    if __name__ == "__main__":
        context = multiprocessing.get_context("%s")
        codes = []
        for number in (0, 1, 3):
            child = context.Process(target=work, args=(number,))
            child.start()
            child.join()
            codes.append(child.exitcode)
        print(codes)
        sys.exit(max(codes))
"""
UNSET = """
    import os, subprocess, sys
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    print(subprocess.run([sys.executable, "-c", "import sys; print(len(sys.path)); sys.exit(6)"], env=environment).returncode)
"""


def check_alike(code, *flags, status=0, **variables):
    """A program says and ends the same with the helper and without; the user's own files run in both."""
    with folder() as path:
        python_folder = "python%d.%d" % sys.version_info[:2]
        site = os.path.join(path, "lib", python_folder, "site-packages")
        os.makedirs(site)
        module(path, "sitecustomize", "import os; os.environ['MINE'] = 'site'")
        module(site, "usercustomize", "import os; os.environ['MINE'] = os.environ.get('MINE', '') + ' and user'")
        variables["PYTHONUSERBASE"] = path
        without = python_without_us(path, code, *flags, **variables)
        assert without[0] == status, without
        assert python(path, code, *flags, **variables) == without


def test_a_program_sees_the_python_that_it_would_have():
    check_alike(PLAIN, status=9)


def test_isolated_pythons_and_such_without_site_are_left_alone():
    for flags in (["-I"], ["-S"], ["-E"], ["-s"], ["-S", "-E"]):
        check_alike(PLAIN.replace("sys.path", "len(sys.argv)"), *flags, status=9)  # -S leaves our folder on the path


def test_children_of_multiprocessing_are_as_without_us():
    for way in ("fork", "spawn", "forkserver"):
        check_alike(CHILDREN % way, status=33)


def test_a_child_without_our_path_is_a_python_without_us():
    check_alike(UNSET)


def test_a_sitecustomize_that_fails_is_complained_of_as_without_us():
    with folder() as path:
        module(path, "sitecustomize", "raise ValueError('of the user')")
        code = "import sys; print('sitecustomize' in sys.modules)"
        assert python(path, code) == python_without_us(path, code)


if __name__ == "__main__":
    tap.main(globals())
