# SPDX-License-Identifier: MIT
"""CUDA graphs one by one: what each capture took, how many nodes it has, and of which batch it is."""

import collections
import ctypes
import functools
import itertools
import os
import re
import sys
import threading
import time
import weakref

from . import hooks, tables

MOST_GRAPHS = 65536
# Modules with a function that updates an instantiated graph, and the function.
UPDATES = {
    "cuda.bindings.driver": "cuGraphExecUpdate",
    "cuda.bindings.runtime": "cudaGraphExecUpdate",
    "cuda.cuda": "cuGraphExecUpdate",
    "cuda.cudart": "cudaGraphExecUpdate",
}
MOST_FRAMES = 200
MOST_REASON = 80  # characters, after which no other sentence begins
UNKNOWN = "-"
NOTHING = (UNKNOWN,) * 5
PAGE = os.sysconf("SC_PAGE_SIZE")


def capture_words(names):
    """What is known of a capture, for people: "batch 8, tokens 40, "; "" where nothing is."""
    return "".join("%s %s, " % pair for pair in zip(("batch", "tokens", "draft", "kind"), names) if pair[1] != UNKNOWN)


def reason_words(error):
    """An error's first sentences: PyTorch goes on about what the report has in its rows."""
    text, more = "", str(error).split("\n", maxsplit=1)[0]
    for sentence in re.split(r"(?<=\.) ", more):
        if text and len(text) + len(sentence) > MOST_REASON:
            break
        text = f"{text} {sentence}" if text else sentence
    return text


class Names:
    """Says of a capture what it is of, by frames of the engine and the table graphs.tsv."""

    def __init__(self, rows=None):
        self.rows = {}
        for row in tables.graphs() if rows is None else rows:
            self.rows.setdefault((row.module, row.function), []).append(row)
        self.versions = {}

    def _row_of(self, frame):
        for row in self.rows.get((frame.f_globals.get("__name__"), frame.f_code.co_name), ()):
            if row.package not in self.versions:
                self.versions[row.package] = tables.installed_version(row.package)
            if tables.holds(row, self.versions[row.package]):
                return row
        return None

    def of(self, frame):
        """(batch, tokens, draft, kind, how many sizes are to be captured), each "-" where it is not known."""
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            row = self._row_of(frame)
            if row:
                names = frame.f_locals
                numbers = [count_at(names, text) for text in (row.batch, row.tokens, row.draft)]
                return (*numbers, word_at(names, row.kind), length_at(names, row.expected))
            frame = frame.f_back
        return NOTHING


def value_at(names, path):
    """What "desc.num_reqs" is; None where there is no such thing."""
    first, *rest = path.split(".")
    value = names.get(first)
    for name in rest:
        value = getattr(value, name, None)
    return value


def _number_at(names, text):
    path, minus, _ = text.partition("-1")
    parts = [value_at(names, part) for part in path.split("/")]
    if any(isinstance(part, bool) or not isinstance(part, int) or part < 0 for part in parts):
        return None
    value = parts[0]
    if len(parts) == 2:
        if not parts[1] or value % parts[1]:
            return None
        value //= parts[1]
    value -= bool(minus)
    return value if value >= 0 else None


def count_at(names, text):
    for way in text.split("|"):
        value = None if way == UNKNOWN else _number_at(names, way)
        if value is not None:
            return value
    return UNKNOWN


def word_at(names, text):
    value = text[1:] if text.startswith("=") else value_at(names, text)
    word = value if isinstance(value, str) else UNKNOWN
    return word if word and word.isprintable() and " " not in word else UNKNOWN


def length_at(names, path):
    """The length of a list, or a number itself; "-" is neither."""
    value = None if path == UNKNOWN else value_at(names, path)
    if isinstance(value, (list, tuple)):
        return len(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else UNKNOWN


def resident():
    """Bytes of the host that this process has in use."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 256).split()[1]) * PAGE
    finally:
        os.close(fd)


class Counter:
    """Counts nodes of graphs that are being captured, as the driver does. What it passes is made once, for each thread anew."""

    def __init__(self):
        self.cells = threading.local()

    def _make(self):
        driver = ctypes.CDLL("libcuda.so.1")
        graph, n_nodes = ctypes.c_void_p(), ctypes.c_size_t()
        about = (ctypes.byref(ctypes.c_int()), ctypes.byref(ctypes.c_uint64()), ctypes.byref(graph), None, None)
        self.cells.all = (driver.cuStreamGetCaptureInfo_v2, about, graph, driver.cuGraphGetNodes, n_nodes, ctypes.byref(n_nodes))

    def of_stream(self, stream):
        if not hasattr(self.cells, "all"):
            self._make()
        ask, about, graph, count, n_nodes, where = self.cells.all
        graph.value = None
        if ask(ctypes.c_void_p(stream), *about) or not graph.value or count(graph, None, where):
            return UNKNOWN
        return n_nodes.value


class Graphs:
    def __init__(self, trace, torch):
        self.trace = trace
        self.torch = torch
        self.names = Names()
        self.counter = Counter()
        self.numbers = itertools.count(1)
        self.named = {}  # number: names, of whole batches that live
        self.kept = collections.Counter()  # of the same names
        self.pools = {}  # of PyTorch's name for it: from 1
        self.members = {}  # of the same name: numbers of graphs that live in it
        self.left = {}  # of the same name: when the last of them went
        self.pool_of = {}  # number: the name
        self.living = {}  # number: what says that the graph is gone
        self.last = {}  # device: what was free and reserved when a capture had last ended
        self.is_serving = False  # a graph was replayed a second time: the program is past its warm-up
        self.n_late = 0

    def start(self, watch):
        for name, make in (
            ("capture_begin", self._around_begin),
            ("capture_end", self._around_end),
            ("reset", self._around_reset),
            ("replay", self._around_replay),
        ):
            hooks.replace(self.torch.cuda.graphs.CUDAGraph, name, make, unseen=True)
        self.replay = vars(self.torch.cuda.graphs.CUDAGraph).get("replay")
        for module, name in UPDATES.items():
            watch.when_imported(module, functools.partial(self._watch_updates, name))

    def _quietly(self, call, *args):
        try:
            return call(*args)
        except Exception as error:
            self.trace.failed("graphs", error)
            return None

    def _held(self):
        """(device, free bytes of the device, its bytes, allocated, reserved)"""
        device = self.torch.cuda.current_device()
        stats = self.torch._C._cuda_memoryStats(device)
        allocated, reserved = (stats[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes"))
        return device, *self.torch.cuda.mem_get_info(device), allocated, reserved

    def end_of(self, name):
        """When a private pool was left by the last of its graphs; None while it has some, 0 where it never had. PyTorch itself
        names the pool of a capture that brings none; else the program made it, and may keep in it what it likes."""
        left = self.left.get(name)  # another thread may capture in it meanwhile
        if left is not None:
            return left
        return None if name[0] != 0 or name in self.members else 0

    def _begin(self, graph, pool, frame):
        """PyTorch makes hundreds of numbers for the one that is asked here. Where the device has as much free as after the capture
        before, PyTorch took nothing since."""
        pool = None if pool is None else tuple(pool)
        if pool:
            self._expect(pool)
        names = self.names.of(frame)
        device = self.torch.cuda.current_device()
        free = self.torch.cuda.mem_get_info(device)[0]
        last_free, reserved = self.last.get(device, (None, 0))
        if free != last_free:
            reserved = self._held()[4]
        graph._memtally = (names, device, free, reserved, sys.exc_info()[1], resident(), time.monotonic_ns(), pool)

    def _expect(self, pool):
        self.left.pop(pool, None)
        return self.members.setdefault(pool, set())

    def _around_begin(self, function):
        def capture_begin(graph, *args, **kwargs):
            self._quietly(self._begin, graph, args[0] if args else kwargs.get("pool"), sys._getframe(1))
            return function(graph, *args, **kwargs)

        return capture_begin

    def _around_end(self, function):
        def capture_end(graph, *args, **kwargs):
            begun = graph.__dict__.pop("_memtally", None)
            error = sys.exc_info()[1]
            if begun and error is not None and error is not begun[4]:  # torch.cuda.graph ends a capture on an error, too
                self._quietly(self._failed, begun, error)
                return function(graph, *args, **kwargs)
            nodes = self._quietly(self._count_nodes)
            try:
                result = function(graph, *args, **kwargs)
            except Exception as late:
                self._quietly(self._failed, begun, late)
                raise
            self._quietly(self._done, graph, begun, nodes)
            return result

        return capture_end

    def _around_reset(self, function):
        def reset(graph, *args, **kwargs):
            result = function(graph, *args, **kwargs)
            number = graph.__dict__.pop("_memtally_number", None)
            if number:
                self._quietly(self._gone, number)
            return result

        return reset

    def _around_replay(self, function):
        def replay(graph, *args, **kwargs):
            if not self.is_serving:
                self._look_at_replay(graph)
            return function(graph, *args, **kwargs)

        return replay

    def _look_at_replay(self, graph):
        """Engines replay a graph once at most while they warm up."""
        state = graph.__dict__
        self.is_serving = "_memtally_replayed" in state
        state["_memtally_replayed"] = True
        kind = self.torch.cuda.graphs.CUDAGraph
        if self.is_serving and vars(kind).get("replay") is self.replay:
            kind.replay = self.replay.__wrapped__  # it is called often from now on

    def _watch_updates(self, name, module):
        hooks.replace(module, name, self._around_update, unseen=True)

    def _around_update(self, function):
        def update(*args, **kwargs):
            result = function(*args, **kwargs)
            self._quietly(self._look_at_update, result, sys._getframe(1))
            return result

        return update

    def _look_at_update(self, result, frame):
        """The module returns its error and what became of the update."""
        error = result[0] if isinstance(result, tuple) and result else 0
        if int(error) == 0:
            return
        why = getattr(result[1], "result", None) if len(result) > 1 else None
        batch, tokens, draft, kind, _ = self.names.of(frame)
        self.trace.say(
            "The update of a CUDA graph failed (%s%d MiB were free): %s"
            % (capture_words((batch, tokens, draft, kind)), self._held()[1] >> 20, getattr(why or error, "name", None) or "error %d" % int(error)),
            once="update %s %s %s %s" % (batch, tokens, draft, kind),
        )

    def _look_whether_late(self, names, taken):
        """More graphs after the warm-up than before: each new shape of a request takes memory while the program serves."""
        self.n_late += self.is_serving
        if self.n_late == 1:
            self.trace.say(
                "A CUDA graph was captured after the program had begun to replay them (%s"
                "it took %d KiB): warm-up captured fewer than the program wants" % (capture_words(names), taken >> 10),
                once="late",
            )

    def _count_nodes(self):
        return self.counter.of_stream(self.torch._C._cuda_getCurrentRawStream(self.torch.cuda.current_device()))

    def _failed(self, begun, error):
        names, free, pool = (begun[0], begun[2], begun[-1]) if begun else (NOTHING, 0, None)
        self._leave(pool)
        self.trace.say(
            "The capture of a CUDA graph failed (%s%d MiB were free before it): %s"
            % (capture_words(names[:4]), free >> 20, reason_words(error))
        )

    def _look_for_another(self, number, names):
        """An engine that captures a whole batch again keeps both: a leak, where it goes on."""
        batch, tokens, draft, kind = names
        if kind != "FULL" or batch == UNKNOWN:
            return
        self.named[number] = names
        self.kept[names] += 1
        if self.kept[names] > 1:
            self.trace.say(
                "A CUDA graph was captured again while an earlier one of it is kept (batch %s, tokens %s, draft %s): %d are there"
                % (batch, tokens, draft, self.kept[names]),
                once="again %s %s %s" % (batch, tokens, draft),
            )

    def _done(self, graph, begun, nodes):
        number = next(self.numbers)
        if not begun or number > MOST_GRAPHS:
            return
        (*names, expected), device, free_before, reserved_before, _, host_before, begun_ns, _ = begun
        ended_on, free, whole, allocated, reserved = self._held()
        self.last[ended_on] = free, reserved
        pool = max(0, reserved - reserved_before)
        driver = max(0, free_before - free - pool)
        graph._memtally_number = number
        self.living[number] = weakref.ref(graph, lambda _: self._quietly(self._gone, number))
        now = time.monotonic_ns()
        nodes = UNKNOWN if nodes is None else nodes
        self._look_for_another(number, tuple(names))
        host = max(0, resident() - host_before)
        name = tuple(graph.pool())
        self._expect(name).add(number)
        self.pool_of[number] = name
        pool_number = self.pools.setdefault(name, len(self.pools) + 1)
        self.trace.add_all((
            "x %d %d %d %d %d %s %d %d %s %s %s %s" % (device, now, number, pool, driver, nodes, allocated, reserved, *names),
            "z %d %d %d %s" % (number, host, pool_number, expected),
            "w %d %d %d %d" % (number, begun_ns, max(0, whole - free), self.is_serving),
        ))
        self._look_whether_late(names, pool + driver)

    def _gone(self, number):
        names = self.named.pop(number, None)
        if names:
            self.kept[names] -= 1
        if not self.living.pop(number, None):
            return
        now = time.monotonic_ns()
        pool = self.pool_of.pop(number)
        self.members[pool].discard(number)
        self._leave(pool)
        self.trace.line("y", now, number)

    def _leave(self, pool):
        """A pool whose last graph went, or whose first could not be captured."""
        if self.members.get(pool) == set():
            del self.members[pool]
            self.left[pool] = time.monotonic_ns()
