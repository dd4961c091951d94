# SPDX-License-Identifier: MIT
"""The peak memory of a call, or of what happens between two moments.

The library measures the host; the allocator's own counters say what a device held. Figures are those of the process, so
what other threads take meanwhile is in them.
"""

from __future__ import annotations

import functools
import inspect
import resource
import threading
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Callable, TypeVar

from . import devices, library
from .errors import Error, error_of

T = TypeVar("T")


@dataclass(frozen=True)
class HostMemory:
    """Resident memory of this process. `method` says how the peak was had: "exact" by the kernel's own mark, "sampled"
    at intervals, "since_start" where both failed: then it is the largest since the process began."""

    peak_bytes: int
    growth_bytes: int
    baseline_bytes: int | None
    after_bytes: int | None
    method: str
    overlapped: bool
    n_samples: int


@dataclass(frozen=True)
class DeviceMemory:
    """What PyTorch's allocator held of one device, and what the driver says was in use of it: by anybody, and by this
    process (`driver_own`), context and all.

    `reserved` is what the allocator had from the driver, `allocated` what tensors had of that. `driver_method` is
    "caught" in a recorded program, whose calls of the driver are followed one by one, else "sampled"."""

    index: int
    uuid: str | None
    name: str
    was_used: bool
    reserved_peak_bytes: int | None
    reserved_growth_bytes: int | None
    allocated_peak_bytes: int | None
    allocated_growth_bytes: int | None
    driver_peak_bytes: int | None
    driver_growth_bytes: int | None
    driver_own_peak_bytes: int | None = None
    driver_own_growth_bytes: int | None = None
    driver_method: str | None = None


@dataclass(frozen=True)
class Record:
    """What a call took. `device` is "host" or "cuda:0", whose peak and growth these are; `method` is "allocator", "driver"
    or that of the host. `problem` says what could not be read."""

    peak_memory_bytes: int
    growth_bytes: int
    device: str
    method: str
    latency_ms: float
    host: HostMemory
    devices: tuple[DeviceMemory, ...]
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        peak, growth = library.text_of_size(self.peak_memory_bytes), library.text_of_size(self.growth_bytes)
        return f"{self.device}: peak {peak} ({self.method}), {growth} more than before, in {self.latency_ms:.1f} ms"


def _known(value: int) -> int | None:
    return None if value == library.UNKNOWN else value


class _Span:
    """One measurement from its begin to its record."""

    def __init__(self, device: Any, method: str, interval: float) -> None:
        self.device = device
        self.uuid = device if isinstance(device, str) and device.startswith("GPU-") and not devices.torch() else None
        self.asked = None if device == "auto" or self.uuid else devices.index_of(device)
        self.was_initialised = devices.is_in_use()
        self.driver_of = self._driver()
        self.problem: str | None = None
        if self.was_initialised and self.asked is not None and self.asked >= devices.count():
            raise error_of("MT_ENOTFOUND", f"there is no device {self.asked}; PyTorch has {devices.count()}")
        self.start = None if self.was_initialised else devices.Start()
        self.peaks = [devices.Peaks(index) for index in range(devices.count())]
        self._synchronize()
        self.handle = self._begin(library.METHODS[method], round(interval * 1e9))

    def _driver(self) -> int | None:
        """The index of the device whose use the driver is asked for."""
        if self.was_initialised and (self.device == "auto" or self.asked is not None):
            return self.asked if self.asked is not None else devices.current()
        return self.asked

    def _options(self, method: int, interval_ns: int) -> library.OptionsStruct:
        """How the library is told the device: by UUID where that is known. To ask CUDA starts it, which a PyTorch that has
        not begun to use it must not find done."""
        index, uuid, count = self.driver_of, self.uuid, library.AS_CUDA
        if index is not None and self.was_initialised:
            uuid = devices.uuid_of(index)
        elif index is not None and devices.torch():
            known = devices.driver_index(index)
            index, count = index if known is None else known, library.AS_NVML
        return library.OptionsStruct(
            method, library.HOST_ONLY if index is None else index, interval_ns, count, uuid.encode() if uuid else None
        )

    def _begin(self, method: int, interval_ns: int) -> Any:
        options = self._options(method, interval_ns)
        try:
            return library.begin(options)
        except Error as error:
            if options.device_index == library.HOST_ONLY and not options.device_uuid:
                self._abandon()
                raise
            self.problem = str(error)  # the driver does not say; the allocator does
        options.device_index, options.device_uuid = library.HOST_ONLY, None
        try:
            return library.begin(options)
        except Error:
            self._abandon()
            raise

    def _abandon(self) -> None:
        for peaks in self._all_peaks():
            peaks.end()

    def _synchronize(self) -> None:
        if devices.is_in_use():
            for index in {devices.current(), *([] if self.asked is None else [self.asked])}:
                devices.synchronize(index)

    def finish(self) -> Record:
        self._synchronize()
        result = library.end(self.handle)
        ends = [_end_of(peaks, result, self.driver_of) for peaks in self._all_peaks()]
        host = _host_of(result)
        problem = self.problem or result.problem.text.decode(errors="replace") or None
        name = self.uuid or f"cuda:{self.asked}"
        return _record_of(host, tuple(ends), self._chosen(ends), result, name, problem)

    def _all_peaks(self) -> list[devices.Peaks]:
        """Also of devices that the program began to use meanwhile: all that they have is since then."""
        return self.start.end() if self.start else self.peaks

    def _chosen(self, ends: list[DeviceMemory]) -> DeviceMemory | None:
        if self.device != "auto":
            return next((end for end in ends if end.index == self.asked), None)
        used = [end for end in ends if end.was_used]
        if not used:
            return None
        return next((end for end in used if end.index == devices.current()), used[0])


def _host_of(result: library.ResultStruct) -> HostMemory:
    method = next(name for name, value in library.METHODS.items() if value == result.method)
    peak, growth = _known(result.peak_bytes), _known(result.growth_bytes)
    if peak is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        baseline = _known(result.baseline_bytes)
        growth = max(0, peak - baseline) if baseline is not None else 0
        method = "since_start"
    return HostMemory(
        peak,
        growth or 0,
        _known(result.baseline_bytes),
        _known(result.after_bytes),
        method,
        bool(result.overlapped),
        result.n_samples,
    )


def _end_of(peaks: devices.Peaks, result: library.ResultStruct, driver_of: int | None) -> DeviceMemory:
    said = peaks.end()
    is_driven = driver_of == peaks.index
    return DeviceMemory(
        index=peaks.index,
        uuid=devices.uuid_of(peaks.index),
        name=devices.name_of(peaks.index),
        was_used=bool(said and said.n_allocations != peaks.before.n_allocations),
        reserved_peak_bytes=peaks.reserved_peak if said else None,
        reserved_growth_bytes=peaks.reserved_peak - peaks.before.reserved if said else None,
        allocated_peak_bytes=peaks.allocated_peak if said else None,
        allocated_growth_bytes=peaks.allocated_peak - peaks.before.allocated if said else None,
        driver_peak_bytes=_known(result.device_peak_bytes) if is_driven else None,
        driver_growth_bytes=_known(result.device_growth_bytes) if is_driven else None,
        driver_own_peak_bytes=_known(result.device_own_peak_bytes) if is_driven else None,
        driver_own_growth_bytes=_known(result.device_own_growth_bytes) if is_driven else None,
        driver_method=library.DEVICE_METHODS.get(result.device_method) if is_driven else None,
    )


def _driver_figures(result: library.ResultStruct) -> tuple[int, int]:
    """Peak and growth: of this process where the driver names it, else of the whole device."""
    own = _known(result.device_own_peak_bytes)
    if own is not None:
        return own, int(result.device_own_growth_bytes)
    return int(result.device_peak_bytes), int(result.device_growth_bytes)


def _record_of(
    host: HostMemory,
    ends: tuple[DeviceMemory, ...],
    chosen: DeviceMemory | None,
    result: library.ResultStruct,
    name: str,
    problem: str | None,
) -> Record:
    latency_ms = result.latency_ns / 1e6
    if chosen and chosen.reserved_peak_bytes:
        growth = chosen.reserved_growth_bytes or 0
        figures = (chosen.reserved_peak_bytes, growth, f"cuda:{chosen.index}", "allocator")
    elif result.device_method and _known(result.device_peak_bytes) and (chosen or not ends):
        figures = (*_driver_figures(result), f"cuda:{chosen.index}" if chosen else name, "driver")
    else:
        figures = (host.peak_bytes, host.growth_bytes, "host", host.method)
    return Record(*figures, latency_ms, host, ends, problem)


class Measure:
    """How to measure. `device` is "auto" (the current device where the call used CUDA, else the host), "host", or a device
    by index, UUID or torch.device. `method` is that of the host: "auto", "exact" or "sampled" each `interval` seconds.

        result, record = Measure(device=0)(fn, *args, **kwargs)

        with Measure() as measure:
            …
        measure.record

        @Measure().wrap
        def fn(): …          # each call: fn.measure.record

    A coroutine function gives a coroutine. An exception goes through, with the record as its `memtally_record`."""

    def __init__(self, device: Any = "auto", method: str = "auto", interval: float = 0.01) -> None:
        if method not in library.METHODS:
            raise error_of("MT_EARG", f"no method {method!r}; there are {', '.join(library.METHODS)}")
        self.device = device
        self.method = method
        self.interval = interval
        self.record: Record | None = None
        self._open = threading.local()

    def _begin(self) -> _Span:
        return _Span(self.device, self.method, self.interval)

    def _end(self, span: _Span, error: BaseException | None = None) -> Record:
        record = self.record = span.finish()
        if error is not None:
            try:
                error.memtally_record = record  # type: ignore[attr-defined]
            except AttributeError:  # an exception without a place for it
                pass
        return record

    def __call__(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> tuple[T, Record]:
        if inspect.iscoroutinefunction(fn):
            return self._await(fn, args, kwargs)  # type: ignore[return-value]
        span = self._begin()
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            self._end(span, error)
            raise
        return result, self._end(span)

    async def _await(self, fn: Any, args: Any, kwargs: Any) -> tuple[Any, Record]:
        span = self._begin()
        try:
            result = await fn(*args, **kwargs)
        except BaseException as error:
            self._end(span, error)
            raise
        return result, self._end(span)

    def __enter__(self) -> Measure:
        if not hasattr(self._open, "spans"):
            self._open.spans = []
        self._open.spans.append(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._open.spans.pop(), error)

    def wrap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is measured at each call and returns what it always did. `fn.measure.record` is the last."""
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def measured(*args: Any, **kwargs: Any) -> Any:
                result, _ = await self._await(fn, args, kwargs)
                return result

        else:

            @functools.wraps(fn)
            def measured(*args: Any, **kwargs: Any) -> Any:
                result, _ = self(fn, *args, **kwargs)
                return result

        measured.measure = self  # type: ignore[attr-defined]
        return measured


def measure(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> tuple[T, Record]:
    """Calls fn(*args, **kwargs) once and returns its result and a record of what it took. Every keyword is fn's own; for
    options see Measure."""
    return Measure()(fn, *args, **kwargs)
