# SPDX-License-Identifier: MIT
"""How full the host or a device is, what can still be had, and giving memory back before it runs short.

The library looks, keeps the history and chooses among cleanups. It calls them on threads of its own: one that raises is noted, one that
hangs is left behind. What PyTorch's and CuPy's pools hold free only Python can ask.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import devices, library
from .errors import error_of
from .resetting import Pool, collect, pools_of_cupy

Clean = Callable[[], Optional[int]]


@dataclass(frozen=True)
class Snapshot:
    """One look. `allocated_bytes` are anybody's; `pooled_bytes` of them are held free by this process's own pools."""

    time_ns: int
    total_bytes: int
    allocated_bytes: int
    available_bytes: int
    pooled_bytes: int
    utilisation: float
    pressure: str
    backend: str

    def __str__(self) -> str:
        text = library.text_of_size
        pooled = f", {text(self.pooled_bytes)} of it free in pools" if self.pooled_bytes else ""
        return (
            f"{text(self.allocated_bytes)} of {text(self.total_bytes)} allocated ({self.utilisation:.0%}, "
            f"{self.pressure}){pooled}; {text(self.available_bytes)} available"
        )


@dataclass(frozen=True)
class PoolUse:
    """What a pool of this process has of the place: in use, and held free."""

    name: str
    used_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Call:
    """One cleanup that was called. `error` is what it raised; it hangs where it had not returned in time."""

    name: str
    freed_bytes: int
    milliseconds: float
    hangs: bool
    error: str | None


@dataclass(frozen=True)
class Cleanup:
    """What is available before and after, and who gave what."""

    before_bytes: int
    after_bytes: int
    calls: tuple[Call, ...]

    @property
    def freed_bytes(self) -> int:
        """Less than nothing where others took memory meanwhile."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class Stats:
    """Since the monitor began. `events` counts how often each level of pressure began, `seconds_since` how long ago the
    last time was. `leak` is none, fast or slow; `full_in_seconds` says when nothing is left, at the growth so far."""

    records: int
    failures: int
    peak_bytes: int
    average_bytes: float
    cleanups: int
    cleaned_bytes: int
    callback_errors: int
    events: dict[str, int]
    seconds_since: dict[str, float | None]
    leak: str
    leaks: int
    bytes_per_second: float
    full_in_seconds: float | None


class _Torch:
    """PyTorch's pool of one device."""

    name = "PyTorch"

    def __init__(self, index: int) -> None:
        self.index = index

    def use(self) -> PoolUse | None:
        said = devices.stats(self.index) if devices.is_in_use() else None
        return PoolUse(self.name, said.allocated, said.reserved - said.allocated) if said else None

    def largest(self, available: int) -> int:
        """Where the driver refuses, PyTorch gives back segments that are free as a whole and asks again. Else a block must
        fit into a free one of the stream that asks."""
        stream = devices.torch().cuda.current_stream(self.index).cuda_stream
        whole, largest = 0, 0
        for segment in devices.torch().cuda.memory_snapshot():
            if segment["device"] != self.index or tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
                continue
            if not segment["active_size"]:
                whole += segment["total_size"]
            if segment["stream"] == stream and segment["segment_type"] == "large":
                free = (block["size"] for block in segment["blocks"] if block["state"] == "inactive")
                largest = max(largest, *free, 0)
        return max(largest, available + whole)

    def free(self) -> None:
        if devices.is_in_use():
            with devices.torch().cuda.device(self.index):
                devices.torch().cuda.empty_cache()


class _CuPy:
    """CuPy's pool of one device. It does not say which of its free blocks could be given as one."""

    name = "CuPy"

    def __init__(self, index: int) -> None:
        self.index = index

    def use(self) -> PoolUse | None:
        pools: list[Pool] = pools_of_cupy()
        if not pools:
            return None
        used = sum(pool.used_bytes(self.index) for pool in pools)
        return PoolUse(self.name, used, sum(pool.total_bytes(self.index) for pool in pools) - used)

    def largest(self, available: int) -> int:
        return available

    def free(self) -> None:
        for pool in pools_of_cupy():
            pool.free(self.index)


def _driver_index(index: int) -> int:
    """The driver's number of a device, which CUDA_VISIBLE_DEVICES does not reorder."""
    said = devices.driver_index(index)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None or visible is None:
        return index if said is None else said
    names = [name.strip() for name in visible.split(",")] if visible else []
    if index >= len(names):
        raise error_of("MT_ENOTFOUND", f"there is no device {index}; CUDA_VISIBLE_DEVICES={visible} shows {len(names)}")
    if not names[index].isdecimal():
        raise error_of(
            "MT_EUNSUPPORTED",
            f"CUDA_VISIBLE_DEVICES names device {index} as {names[index]}; name it as the driver counts, 'gpu0'",
        )
    return int(names[index])


@dataclass(frozen=True)
class _Settings:
    auto_cleanup: bool = True
    cleanup_threshold: float = 0.85
    history: int = 1000
    levels: tuple[float, float, float] = (0.6, 0.8, 0.9)
    callback_seconds: float = 10.0


@dataclass(frozen=True)
class _Registered:
    name: str
    clean: Clean
    priority: int


class Monitor:
    """Watches one place; memtally.monitor() makes it. Threads may share it. In a process that was forked it begins anew."""

    def __init__(self, place: str, index: int | None, settings: _Settings) -> None:
        """`index` is that of a device as PyTorch and CuPy count, or None."""
        self.place = place
        self.settings = settings
        self.on_pressure: Callable[[Snapshot, str], None] | None = None
        self._pools: list[_Torch | _CuPy] = [] if index is None else [_Torch(index), _CuPy(index)]
        self._wants_largest = threading.local()
        self._cleanups: dict[int, _Registered] = {}
        self._next_id = 1
        self._begin()
        self._register("cycles", _collect, 0)
        for pool in self._pools:
            self._register(f"{pool.name}'s cache", _none_of(pool.free), 0)
        if index is None:
            self._check(library.load().mt_monitor_add_heap_trim, self._handle, 0)

    # ---- the library's monitor ----

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._kept: list[Any] = []  # what the library calls must stay
        self._functions: dict[int, Any] = {}
        self._errors: dict[str, str] = {}  # by the name that the library has of a cleanup
        self._n_errors = 0
        self._ids: dict[int, int] = {}  # of the library, by ours
        source, self._handle = library.MonitorSourceStruct(), library.MonitorPointer()
        self._check(library.load().mt_monitor_open_source, self.place.encode(), ctypes.byref(source))
        self.backend: str = source.name.decode()
        options = self._options()
        self._check(
            library.load().mt_monitor_create, ctypes.byref(source), ctypes.byref(options), ctypes.byref(self._handle)
        )
        for pool in self._pools:
            ask = library.AskPoolFunction(self._asker(pool))
            self._kept.append(ask)
            self._check(library.load().mt_monitor_add_pool, self._handle, ask, None)

    def _begin_again(self) -> None:
        """In a child whose parent's threads are gone: their locks may be held for ever."""
        self._begin()
        for number, registered in self._cleanups.items():
            self._add(number, registered)
        if not self._pools:
            self._check(library.load().mt_monitor_add_heap_trim, self._handle, 0)

    def _options(self) -> library.MonitorOptionsStruct:
        settings, options = self.settings, library.MonitorOptionsStruct()
        options.history = settings.history
        options.level_ratios[:] = settings.levels
        options.cleanup_ratio = settings.cleanup_threshold if settings.auto_cleanup else 0
        options.callback_ns = int(settings.callback_seconds * 1e9)
        options.on_pressure = library.PressureFunction(self._tell_pressure)
        self._kept.append(options)
        return options

    def _check(self, function: Any, *arguments: Any) -> None:
        error = library.ErrorStruct()
        if function(*arguments, ctypes.byref(error)) < 0:
            raise library.error_from(error)

    def _note(self, name: str, error: BaseException) -> None:
        with self._lock:
            self._errors[name] = f"{type(error).__name__}: {error}"
            self._n_errors += 1

    def _tell_pressure(self, _: Any, seen: Any, before: int) -> None:
        function = self.on_pressure
        if function is None:
            return
        try:
            function(self._snapshot_of(seen.contents), library.PRESSURES[before])
        except BaseException as error:  # the library's frames are above this one
            self._note("on_pressure", error)

    def _asker(self, pool: _Torch | _CuPy) -> Callable[[Any, int, Any], int]:
        def ask(_: Any, available: int, pooled: Any) -> int:
            try:
                use = pool.use()
                pooled.contents.free_bytes = use.free_bytes if use else 0
                wants = use and getattr(self._wants_largest, "now", False)
                pooled.contents.largest_bytes = pool.largest(available) if wants else 0
                return 0
            except BaseException as error:
                self._note(pool.name, error)
                return -1

        return ask

    # ---- looking ----

    def _snapshot_of(self, seen: library.MonitorSnapshotStruct) -> Snapshot:
        return Snapshot(
            seen.time_ns,
            seen.total_bytes,
            seen.allocated_bytes,
            seen.available_bytes,
            seen.pooled_bytes,
            seen.utilisation_ratio,
            library.PRESSURES[seen.pressure],
            self.backend,
        )

    def snapshot(self) -> Snapshot:
        """Looks, and keeps nothing."""
        seen = library.MonitorSnapshotStruct()
        self._check(library.load().mt_monitor_look, self._handle, ctypes.byref(seen))
        return self._snapshot_of(seen)

    def record(self) -> Snapshot:
        """Looks and keeps it. From the threshold on it cleans up, until enough is available or nobody has more to give,
        at most once a second."""
        seen = library.MonitorSnapshotStruct()
        self._check(library.load().mt_monitor_record, self._handle, ctypes.byref(seen))
        return self._snapshot_of(seen)

    @property
    def history(self) -> list[Snapshot]:
        """What was recorded, oldest first."""
        seen = (library.MonitorSnapshotStruct * self.settings.history)()
        n = library.load().mt_monitor_history(self._handle, seen, self.settings.history)
        return [self._snapshot_of(one) for one in seen[:n]]

    def pools(self) -> list[PoolUse]:
        """What PyTorch's and CuPy's pools have of this device: used told from held free."""
        return [use for use in (pool.use() for pool in self._pools) if use]

    def can_allocate(self, size: int | str, margin: float = 0.1) -> bool:
        """Whether a block of so many bytes ("4GiB") can be had now as one, with a tenth of it on top."""
        self._wants_largest.now = True
        try:
            return bool(library.load().mt_monitor_can_allocate(self._handle, library.size(size), margin))
        finally:
            self._wants_largest.now = False

    def is_low(self, threshold: float | None = None) -> bool:
        """Whether so much of the place is allocated; the threshold of cleanups where none is said."""
        ratio = self.settings.cleanup_threshold if threshold is None else threshold
        return bool(library.load().mt_monitor_is_low(self._handle, ratio))

    def stats(self) -> Stats:
        said = library.MonitorStatsStruct()
        library.load().mt_monitor_stats_read(self._handle, ctypes.byref(said))
        now, unknown = time.monotonic_ns(), library.UNKNOWN
        since = [None if at == unknown else max(0, now - at) / 1e9 for at in said.last_event_ns]
        growth = said.growth
        return Stats(
            records=said.n_records,
            failures=said.n_failures,
            peak_bytes=said.peak_bytes,
            average_bytes=said.average_bytes,
            cleanups=said.n_cleanups,
            cleaned_bytes=said.cleaned_bytes,
            callback_errors=self._n_errors,
            events=dict(zip(library.PRESSURES, said.n_events)),
            seconds_since=dict(zip(library.PRESSURES, since)),
            leak=library.LEAKS[growth.leak],
            leaks=said.n_leaks,
            bytes_per_second=growth.bytes_per_s,
            full_in_seconds=None if growth.full_ns == unknown else growth.full_ns / 1e9,
        )

    # ---- cleaning up ----

    def cleanup(self, available: int | str | None = None) -> Cleanup:
        """Calls cleanups until so much is available, or all of them. Busy where a cleanup is under way."""
        target = library.UNKNOWN if available is None else library.size(available)
        told = library.MonitorCleanupStruct()
        self._check(library.load().mt_monitor_cleanup, self._handle, target, ctypes.byref(told))
        calls = [self._call_of(call) for call in told.calls[: min(told.n_calls, library.MONITOR_CALLS)]]
        return Cleanup(told.before_bytes, told.after_bytes, tuple(calls))

    def _call_of(self, call: library.MonitorCallStruct) -> Call:
        name = call.name.decode()
        registered = self._cleanups.get(int(name)) if name.isdecimal() else None
        with self._lock:
            error = self._errors.get(name)
        shown = registered.name if registered else name
        return Call(shown, call.freed_bytes, call.took_ns / 1e6, bool(call.hangs), error)

    def register_cleanup(self, clean: Clean, priority: int = 0, name: str | None = None) -> int:
        """Has `clean()` called when memory is short, on a thread of the library's. Of two, that of higher priority goes first;
        of one priority, whoever gave more for each millisecond. It returns how many bytes it gave back, or None. The number
        that comes back is for unregister_cleanup()."""
        if not callable(clean):
            raise error_of("MT_EARG", f"{clean!r} cannot be called")
        return self._register(name or str(getattr(clean, "__name__", "cleanup")), clean, priority)

    def _register(self, name: str, clean: Clean, priority: int) -> int:
        with self._lock:
            number, self._next_id = self._next_id, self._next_id + 1
            registered = _Registered(name, clean, priority)
            self._add(number, registered)
            self._cleanups[number] = registered
        return number

    def _add(self, number: int, registered: _Registered) -> None:
        def call(_: Any) -> int:
            self._errors.pop(str(number), None)
            try:
                freed = registered.clean()
                return freed if isinstance(freed, int) and 0 <= freed < library.UNKNOWN else library.UNKNOWN
            except BaseException as error:
                self._note(str(number), error)
                return 0

        function, identity = library.CleanFunction(call), ctypes.c_uint64()
        self._functions[number] = function
        self._check(
            library.load().mt_monitor_add_cleanup,
            self._handle,
            str(number).encode(),
            function,
            None,
            registered.priority,
            ctypes.byref(identity),
        )
        self._ids[number] = identity.value

    def unregister_cleanup(self, number: int) -> None:
        """Busy where it is being called."""
        with self._lock:
            if number not in self._ids:
                raise error_of("MT_ENOTFOUND", f"no cleanup has the number {number}")
            if library.load().mt_monitor_remove_cleanup(self._handle, self._ids[number]) < 0:
                raise error_of("MT_EBUSY", f"cleanup {number} is being called")
            del self._ids[number], self._cleanups[number], self._functions[number]


def _collect() -> None:
    collect()


def _none_of(free: Callable[[], None]) -> Clean:
    def clean() -> None:
        free()

    return clean


_monitors: dict[str, Monitor] = {}
_lock = threading.Lock()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for place, one in list(_monitors.items()):
        try:
            one._begin_again()
        except Exception:  # the child asks anew, and hears why
            del _monitors[place]


os.register_at_fork(after_in_child=_in_child)


def _place_of(device: Any) -> tuple[str, int | None]:
    if device == "cgroup":
        return "cgroup", None
    if isinstance(device, str) and device.startswith("gpu"):
        return device, None
    index = devices.index_of(device)
    if index is not None and index < 0:
        raise error_of("MT_EARG", f"there is no device {index}")
    return ("host", None) if index is None else (f"gpu{_driver_index(index)}", index)


def monitor(
    device: Any = 0,
    auto_cleanup: bool = True,
    cleanup_threshold: float = 0.85,
    *,
    history: int = 1000,
    levels: tuple[float, float, float] = (0.6, 0.8, 0.9),
    callback_seconds: float = 10.0,
) -> Monitor:
    """The monitor of a device (0, "cuda:1"; "gpu1" as the driver counts), of what this process can have of the "host", or of its
    "cgroup" alone. There is one for each: the first call chooses its settings, and a later call says the same or nothing.

    `levels` are the shares from which pressure is moderate, high and critical. A cleanup that takes longer than
    `callback_seconds` is left behind."""
    if history < 1 or callback_seconds <= 0 or len(levels) != 3:
        raise error_of("MT_EARG", "a monitor keeps one snapshot or more, has three levels, and waits for a cleanup")
    settings = _Settings(auto_cleanup, cleanup_threshold, history, (levels[0], levels[1], levels[2]), callback_seconds)
    place, index = _place_of(device)
    with _lock:
        found = _monitors.get(place)
        if found is None:
            found = _monitors[place] = Monitor(place, index, settings)
        elif settings not in (found.settings, _Settings()):
            raise error_of("MT_EBUSY", f"{place} has a monitor with other settings: {found.settings}")
        return found
