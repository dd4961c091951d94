# SPDX-License-Identifier: MIT
"""PyTorch's own history of its allocator, drained into the trace.

PyTorch keeps the history in a ring; it is emptied at the beginning and the end of phases, when
memory ran out, before the process ends, and by a thread that looks how full it may be and whether
nothing happens any more. A call stack is taken where memory ran out, and nowhere else.
"""

import bisect
import functools
import itertools
import os
import sys
import threading
import time

from . import pool

RING = 262144  # entries of each device
DRAIN_AT = 16384
LOOK_SECONDS = 0.05
QUIET_SHARE = 0.05  # of the time, for draining what little has happened


FRAMES = 6  # of a call stack
OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


# PyTorch's own functions that say by themselves what was going on.
TELLING = {"_engine_run_backward": "backward"}


def calls_of(frame, torch_folder):
    """From the innermost one on, without PyTorch's and ours: "train.py:31 step", "train.py:40 main". Of calls within installed
    packages the innermost: a program wants to see its own."""
    was_installed = False
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((OWN_FOLDER, torch_folder, "<frozen")):
            is_installed = "-packages" + os.sep in path
            if not (is_installed and was_installed):
                yield "%s:%d %s" % (os.path.basename(path), frame.f_lineno, frame.f_code.co_name)
            was_installed = is_installed
        elif frame.f_code.co_name in TELLING:
            yield TELLING[frame.f_code.co_name]
        frame = frame.f_back


def who_waits_for_this():
    """The innermost frame of a thread that waits for work of this one: PyTorch computes gradients on threads of its own."""
    if threading.current_thread() is threading.main_thread():
        return None
    here = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        if thread != here and frame.f_code.co_name in TELLING:
            return frame
    return None


def stack_of(frame, torch_folder):
    calls = itertools.chain(calls_of(frame, torch_folder), calls_of(who_waits_for_this(), torch_folder))
    return " < ".join(itertools.islice(calls, FRAMES))


def both_clocks(times=8):
    """The same moment by the clock since the machine started and by the one that has dates. On a busy machine a thread may
    rest between two looks: of some pairs the one counts whose first clock moved least."""
    pairs = []
    for _ in range(times):
        before, unix_ns, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        pairs.append((after - before, before, unix_ns))
    took, before, unix_ns = min(pairs)
    return before + took // 2, unix_ns


def rounded(size):
    return (size + 511) & ~511


class Ranges:
    """What is mapped of expandable segments: pieces by address, of which a part may go."""

    def __init__(self):
        self.starts = []
        self.sizes = {}

    def add(self, start, size):
        if start not in self.sizes:
            bisect.insort(self.starts, start)
        self.sizes[start] = size

    def remove(self, start, size):
        """Returns what is gone and what is left of it: starts, and (start, size)."""
        end = start + size
        first = max(bisect.bisect_right(self.starts, start) - 1, 0)
        gone = []
        for at in self.starts[first:]:
            if at >= end:
                break
            if at + self.sizes[at] > start:
                gone.append(at)
        left = []
        for at in gone:
            piece_end = at + self.sizes.pop(at)
            self.starts.pop(bisect.bisect_left(self.starts, at))
            if at < start:
                left.append((at, start - at))
            if piece_end > end:
                left.append((end, piece_end - end))
        for piece in left:
            self.add(*piece)
        return gone, left

    def within(self, start, size):
        """The pieces that begin in a range."""
        low = bisect.bisect_left(self.starts, start)
        return self.starts[low : bisect.bisect_left(self.starts, start + size)]


class History:
    def __init__(self, trace, torch):
        self.trace = trace
        self.torch = torch
        self.lock = threading.RLock()
        self.pid = 0
        self.stopped = threading.Event()
        self.thread = None
        self.shared = False  # the program records a history of its own
        self.pool = None  # ours, where it is the allocator: PyTorch has no history of it
        self.reset()
        os.register_at_fork(after_in_child=self._in_child)
        self.watchers = []  # called with the addresses that were freed
        self.end_of_pool = lambda name: None  # when a private pool was left by its graphs; None before, 0 where it had none
        self.before_drain = lambda: None
        self.after_drain = lambda: None

    def reset(self):
        self.last = {}  # device: its last entry
        self.same = {}  # device: the microsecond of its last entry, and how many came in it
        self.mapped = {}  # device: Ranges
        self.known_private = {}  # address: whether graphs have it
        self.known_rest = {}
        self.n_seen = 0
        self.next_quiet = 0.0

    def _in_child(self):
        self.lock = threading.RLock()
        self.stopped = threading.Event()
        self.pid = 0
        self.reset()

    def start(self):
        self.pid = os.getpid()
        self.pool = pool.opened(self.torch)
        if self.pool:
            self._start_watching()
            return
        enabled = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
        self.shared = bool(enabled and enabled())  # the program may have begun before the device was there
        if not self.shared:
            self._record()
        self._keep_on_when_the_program_records()
        self._drain_when_out_of_memory()
        self._start_watching()

    def _start_watching(self):
        self.thread = threading.Thread(target=self._watch, name="memtally", daemon=True)
        self.thread.start()

    def finish(self):
        """The last of it; whether this process had any. A thread in PyTorch's code must not meet the
        interpreter's end."""
        if self.pid != os.getpid():
            return False
        self.stopped.set()
        if self.thread is not threading.current_thread():
            self.thread.join(1)
        self.drain()
        return True

    def _record(self):
        record = self._own_record if hasattr(self, "_own_record") else self.torch.cuda.memory._record_memory_history
        options = {"context": None, "stacks": "python", "max_entries": RING}
        try:
            record("all", clear_history=True, **options)
        except TypeError:  # before 2.8 every call clears it
            record("all", **options)

    def _keep_on_when_the_program_records(self):
        memory = self.torch.cuda.memory
        own = self._own_record = memory._record_memory_history

        @functools.wraps(own)
        def record(enabled="all", *args, **kwargs):
            self.drain()
            result = own(enabled, *args, **kwargs)
            self.shared = bool(enabled)
            if not enabled and self.pid == os.getpid():
                try:
                    self._record()
                except Exception as error:
                    self.trace.failed("the allocator's history", error)
            return result

        memory._record_memory_history = record

    def _drain_when_out_of_memory(self):
        attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach:
            attach(self._out_of_memory)

    def _out_of_memory(self, device, asked, *sizes):
        """PyTorch's allocator has given up; it calls this in the thread that asked."""
        try:
            stack = stack_of(sys._getframe(1), os.path.dirname(self.torch.__file__) + os.sep)
            if stack:
                clean = "".join(c if c.isprintable() else " " for c in stack)[:800]
                self.trace.line("o", time.monotonic_ns(), device, asked, clean)
        except Exception as error:
            self.trace.failed("who ran out of memory", error)
        self.drain()
        self.trace.flush()

    def _watch(self):
        last = 0
        while self.pid == os.getpid() and not self.stopped.wait(LOOK_SECONDS):
            try:
                if not self._may_snapshot_here():
                    continue
                n = self._count()
                is_quiet = n == last and n != self.n_seen and time.monotonic() > self.next_quiet
                last = n
                if n - self.n_seen > DRAIN_AT or is_quiet:
                    began = time.monotonic()
                    self.drain(n)
                    self.after_drain()
                    self.trace.flush()
                    self.next_quiet = time.monotonic() + (time.monotonic() - began) / QUIET_SHARE
            except Exception as error:
                self.trace.failed("the allocator's history", error)
                return

    def _may_snapshot_here(self):
        """Where the program records call stacks, a snapshot names them, for which PyTorch imports torch._inductor. Done by
        this thread while another one imports it, that import fails."""
        codecache = sys.modules.get("torch._inductor.codecache")
        is_there = codecache is not None and not getattr(codecache.__spec__, "_initializing", False)
        return is_there or not self.shared

    def _count(self):
        """Allocations and releases so far, of all devices."""
        if self.pool:
            return self.pool.count()
        n = 0
        for device in range(self.torch._C._cuda_getDeviceCount()):
            stats = self.torch._C._cuda_memoryStats(device).get("allocation", {}).get("all", {})
            n += stats.get("allocated", 0) + stats.get("freed", 0)
        return n

    def drain(self, n_seen=None):
        """Writes what happened since the last time. Never raises."""
        if self.pid != os.getpid():
            return
        with self.lock:
            self.before_drain()
            try:
                if n_seen is None:
                    n_seen = self._count()
                if self.pool:
                    self.n_seen = n_seen
                    self._take_from_pool()
                    return
                snapshot = self.torch.cuda.memory._snapshot()
                if not self.shared:
                    self._record()
                self.n_seen = n_seen
                self.take(snapshot, *both_clocks())
            except Exception as error:
                self.pid = 0
                self.trace.failed("the allocator's history", error)

    def _take_from_pool(self):
        lines, freed = self.pool.take()
        for watcher in self.watchers:
            watcher(freed)
        self.trace.add_all(lines)

    def take(self, snapshot, now_ns, unix_ns):
        """The lines of a snapshot; its times are microseconds of the clock that has dates."""
        offset = unix_ns - now_ns
        lines = ["c %d %d" % (now_ns, unix_ns)] if snapshot["device_traces"] else []
        freed = []
        for device, entries in enumerate(snapshot["device_traces"]):
            for entry in self._new(device, entries):
                at = self._time_of(device, entry) - offset if "time_us" in entry else now_ns
                self._take_entry(device, entry, at, lines, freed)
        for watcher in self.watchers:
            watcher(freed)
        for segment in snapshot["segments"]:
            self._take_segment(segment, lines)
        self.trace.add_all(lines)

    def _new(self, device, entries):
        """Those that were not there the last time; the ring may not have been emptied since."""
        first = 0
        last = self.last.get(device)
        if last and entries and "time_us" in last and entries[0]["time_us"] <= last["time_us"]:
            for index in range(len(entries) - 1, -1, -1):
                if entries[index] == last:
                    first = index + 1
                    break
        if entries:
            self.last[device] = entries[-1]
        return entries[first:]

    def _time_of(self, device, entry):
        """Entries of one microsecond are a nanosecond apart, so that they keep their order."""
        last, n = self.same.get(device, (None, 0))
        n = min(n + 1, 999) if entry["time_us"] == last else 0
        self.same[device] = (entry["time_us"], n)
        return entry["time_us"] * 1000 + n

    def _take_entry(self, device, entry, at, lines, freed):
        action, address, size = entry["action"], entry.get("addr", 0), entry.get("size", 0)
        if action == "alloc":
            lines.append("a %d %d %x %d" % (device, at, address, size))
        elif action == "free_completed":
            lines.append("f %d %d %x" % (device, at, address))
            self.known_rest.pop(address, None)
            freed.append(address)
        elif action == "segment_alloc":
            lines.append("s %d %d %x %d" % (device, at, address, size))
        elif action == "segment_free":
            lines.append("e %d %d %x" % (device, at, address))
            self.known_private.pop(address, None)
        elif action == "segment_map":
            self.mapped.setdefault(device, Ranges()).add(address, size)
            lines.append("s %d %d %x %d" % (device, at, address, size))
        elif action == "segment_unmap":
            gone, left = self.mapped.setdefault(device, Ranges()).remove(address, size)
            for start in gone:
                lines.append("e %d %d %x" % (device, at, start))
                self.known_private.pop(start, None)
            for piece in left:
                lines.append("s %d %d %x %d" % ((device, at) + piece))

    def _tell_private(self, pieces, end, lines):
        has_graphs = end is None
        for piece in pieces if end != 0 else ():
            if self.known_private.get(piece) == has_graphs:
                continue
            if has_graphs or piece not in self.known_private:
                lines.append("p %x" % piece)
            if not has_graphs:
                lines.append("q %d %x" % (end, piece))
            self.known_private[piece] = has_graphs

    def _take_segment(self, segment, lines):
        address = segment["address"]
        name = tuple(segment.get("segment_pool_id", (0, 0)))
        if name != (0, 0):
            pieces = [address]
            if segment.get("is_expandable"):
                pieces = self.mapped.get(segment["device"], Ranges()).within(address, segment["total_size"])
            self._tell_private(pieces, self.end_of_pool(name), lines)
        for block in segment["blocks"]:
            at = block.get("address", address)
            address = at + block["size"]
            asked = block.get("requested_size", block["size"])
            if block["state"].startswith("active_alloc") and block["size"] != rounded(asked):
                if self.known_rest.get(at) != block["size"]:
                    self.known_rest[at] = block["size"]
                    lines.append("r %x %d" % (at, block["size"]))
