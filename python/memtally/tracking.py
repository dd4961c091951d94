# SPDX-License-Identifier: MIT
"""Memory over time. A thread of the library looks, which needs no lock of Python's; what PyTorch's allocator says is read
at marks, for only Python can ask it. The library judges the series."""

from __future__ import annotations

import itertools
import threading
import weakref
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Callable, Iterator, Sequence

from . import devices, library
from .documents import html_table, table
from .errors import error_of
from .resetting import collect, trim

_MOST_MARKS = 4096
_MARKS_OF_A_SERIES = 8  # MT_TREND_POINTS


@dataclass(frozen=True)
class Mark:
    """A moment that has a name: what was resident, and (allocated, reserved) by PyTorch's allocator for each device."""

    seconds: float
    name: str
    resident_bytes: int | None
    allocators: dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Check:
    """An operation that should have left memory as it was: by how much each place grew, after a collection of cycles."""

    name: str
    seconds: float
    growth_bytes: dict[str, int]
    tolerance_bytes: int

    @property
    def is_neutral(self) -> bool:
        return all(growth <= self.tolerance_bytes for growth in self.growth_bytes.values())

    def __str__(self) -> str:
        text = library.text_of_size
        grown = ", ".join(f"{place} {text(growth)} more" for place, growth in self.growth_bytes.items())
        return f"{self.name}: {'neutral' if self.is_neutral else 'not neutral'}, {grown}"


@dataclass(frozen=True)
class Alert:
    """Growth above the first sample that has passed the next multiple of the tracker's `alert`."""

    place: str
    bytes: int
    baseline_bytes: int

    @property
    def growth_bytes(self) -> int:
        return self.bytes - self.baseline_bytes

    def __str__(self) -> str:
        text = library.text_of_size
        return f"{self.place} has {text(self.bytes)}, {text(self.growth_bytes)} more than at the start"


@dataclass(frozen=True)
class Series:
    """What a place had at moments since the start. `source` is "resident", "driver" (anybody's use of the device) or
    "allocator" (what PyTorch had reserved, at marks)."""

    place: str
    source: str
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class Trend:
    """The pattern of a series: too_short, steady, warm_up, sawtooth, step, leak, fragmentation or unclear. `growth_bytes` is
    that of its lowest points over the whole time."""

    place: str
    source: str
    pattern: str
    confidence: float
    baseline_bytes: int
    low_bytes: int
    high_bytes: int
    growth_bytes: int
    bytes_per_second: float


@dataclass(frozen=True)
class Analysis:
    """What a tracker saw, with a pattern for each place; prints as a table, and a notebook shows it as one."""

    label: str
    seconds: float
    trends: tuple[Trend, ...]
    checks: tuple[Check, ...]
    alerts: tuple[Alert, ...]
    marks: tuple[Mark, ...]
    series: tuple[Series, ...]

    def trend(self, place: str = "host") -> Trend | None:
        return next((trend for trend in self.trends if trend.place == place), None)

    @property
    def is_growing(self) -> bool:
        return any(trend.pattern in ("leak", "fragmentation") for trend in self.trends)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _lines(self) -> list[tuple[str, ...]]:
        text = library.text_of_size
        lines: list[tuple[str, ...]] = [("place", "pattern", "confidence", "lowest", "highest", "growth", "by")]
        for one in self.trends:
            sizes = (text(one.low_bytes), text(one.high_bytes), text(one.growth_bytes))
            lines.append((one.place, one.pattern, f"{one.confidence:.0%}", *sizes, one.source))
        return lines

    def line(self, place: str = "host", columns: int = 60) -> str:
        """The curve of a place in one line, from nothing to its highest."""
        from .pictures import sparkline

        found = next((one for one in self.series if one.place == place), None)
        return sparkline(found.bytes, columns) if found else ""

    def __str__(self) -> str:
        heading = f"{self.label}: {self.seconds:.1f} s" if self.label else f"{self.seconds:.1f} s"
        said = [*map(str, self.checks), *map(str, self.alerts)]
        return "\n".join([heading, self.line(), table(self._lines()), *said])

    def _repr_html_(self) -> str:
        return html_table(self._lines(), self.label)


_trackers: weakref.WeakValueDictionary[int, Tracker] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def _alert(number: int | None, device: int, size: int, baseline: int) -> None:
    tracker = _trackers.get(number or 0)
    if tracker is not None:
        tracker._hear(device, size, baseline)


# One for the process: a thread of the library may be within it when a tracker goes.
_ALERT = library.AlertFunction(_alert)


class Tracker:
    """Looks at this process's memory each `interval` seconds, on the host and on `devices`: those that PyTorch uses at the
    start ("auto"), or numbers as the driver counts. Growth of each further `alert` bytes above the first sample is told to
    `on_alert`, on the thread that looks; 0 tells none.

        with memtally.Tracker("serving") as tracker:
            for request in requests:
                with tracker.neutral("inference"):
                    model(request)
        print(tracker.analyze())
        tracker.save("memory.html")
    """

    def __init__(
        self,
        label: str = "",
        interval: float = 0.5,
        alert: int | str = 100 << 20,
        on_alert: Callable[[Alert], Any] | None = None,
        devices: str | Sequence[int] = "auto",
    ) -> None:
        self.label = label
        self.interval = interval
        self.alert = library.size(alert)
        self.on_alert = on_alert
        self.devices = devices
        self.alerts: list[Alert] = []
        self.checks: list[Check] = []
        self.marks: list[Mark] = []
        self.problem: str | None = None
        self._lock = threading.RLock()
        self._places: list[str] = []
        self._samples: list[library.TrackSampleStruct] = []
        self._track: library.TrackPointer | None = None
        self._end: Any = None

    def _chosen(self) -> list[tuple[int, str]]:
        """Each device as the driver counts, and its name here."""
        if self.devices != "auto":
            return [(int(index), f"cuda:{index}") for index in self.devices]
        found = [(devices.driver_index(index), f"cuda:{index}") for index in range(devices.count())]
        return [(index, name) for index, name in found if index is not None][: library.TRACK_DEVICES]

    def _options(self, chosen: list[tuple[int, str]]) -> library.TrackOptionsStruct:
        if len(chosen) > library.TRACK_DEVICES:
            raise error_of("MT_EARG", f"{len(chosen)} devices; a tracker has at most {library.TRACK_DEVICES}")
        number = next(_numbers)
        _trackers[number] = self
        options = library.TrackOptionsStruct(round(self.interval * 1e9), self.alert, _ALERT, number, len(chosen))
        options.devices[: len(chosen)] = [index for index, _ in chosen]
        return options

    def start(self, label: str | None = None) -> Tracker:
        """Takes the baseline and begins to look. A tracker that was stopped begins anew."""
        with self._lock:
            if self._track is not None:
                raise error_of("MT_EBUSY", "the tracker runs already; stop it first")
            if label is not None:
                self.label = label
            chosen = self._chosen()
            try:
                track = library.start_track(self._options(chosen))
            except Exception as error:
                if self.devices != "auto" or not chosen:
                    raise
                self.problem, chosen = str(error), []  # the driver does not say; the allocator does, at marks
                track = library.start_track(self._options(chosen))
            self.alerts, self.checks, self.marks, self._samples = [], [], [], []
            self._places = [name for _, name in chosen]
            self._track = track
            self._end = weakref.finalize(self, library.destroy_track, track)  # also when the interpreter ends
        self.mark("start")
        return self

    def stop(self) -> Analysis:
        """Looks a last time, stops, and says what was seen. Does nothing more where it has stopped."""
        if self._track is not None:
            self.mark("end")
        with self._lock:
            track, self._track = self._track, None
            if track is not None:
                self._samples = library.samples(track)
        if track is not None:
            self._end()  # without the lock, which an alert may wait for
        return self.analyze()

    def __enter__(self) -> Tracker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _hear(self, device: int, size: int, baseline: int) -> None:
        alert = Alert("host" if device < 0 else self._places[device], size, baseline)
        self.alerts.append(alert)
        if self.on_alert:
            try:
                self.on_alert(alert)
            except Exception as error:
                self.problem = f"on_alert failed: {type(error).__name__}: {error}"

    def mark(self, name: str) -> Mark:
        """Looks now, and gives the moment a name. Recordings have the mark too."""
        from .naming import mark as mark_recording

        with self._lock:
            if self._track is None:
                raise error_of("MT_EARG", "the tracker does not run; start it first")
            sample = library.look(self._track)
            found = {index: devices.stats(index) for index in range(devices.count())}
            said = {index: (one.allocated, one.reserved) for index, one in found.items() if one}
            made = Mark(sample.time_ns / 1e9, name, _known(sample.resident_bytes), said)
            if len(self.marks) == _MOST_MARKS:
                del self.marks[1::2]
            self.marks.append(made)
        mark_recording(name)
        return made

    @contextmanager
    def neutral(self, name: str, tolerance: int | str = "1MiB") -> Iterator[None]:
        """Checks that what happens within leaves no more memory in use than there was: on the host what is resident, after
        cycles were collected and malloc() has given back what is free; on devices what PyTorch's tensors have."""
        before = self._settled(f"before {name}")
        yield
        after = self._settled(name)
        had = _in_use(before)
        growth = {place: size - had.get(place, 0) for place, size in _in_use(after).items()}
        self.checks.append(Check(name, after.seconds, growth, library.size(tolerance)))

    def _settled(self, name: str) -> Mark:
        collect()
        trim()
        return self.mark(name)

    def _now(self) -> list[library.TrackSampleStruct]:
        with self._lock:
            return library.samples(self._track) if self._track is not None else self._samples

    def analyze(self) -> Analysis:
        """What was seen so far, or until the stop."""
        samples = self._now()
        marks = tuple(self.marks)
        series = [
            _series("host", "resident", [(one.time_ns, one.resident_bytes) for one in samples]),
            *(
                _series(place, "driver", [(one.time_ns, one.device_bytes[at]) for one in samples])
                for at, place in enumerate(self._places)
            ),
        ]
        trends = [_trend(one, _heap_of(samples) if one.source == "resident" else None) for one in series if one.bytes]
        for index in sorted({index for mark in marks for index in mark.allocators}):
            points = _points_of_allocator(marks, index)
            one = _series(f"cuda:{index}", "allocator", [(time, held) for time, held, _ in points])
            series.append(one)
            if len(points) >= _MARKS_OF_A_SERIES:
                trends.append(_trend_of(one, points))
        seconds = samples[-1].time_ns / 1e9 if samples else 0.0
        found = tuple(one for one in series if one.bytes)
        return Analysis(self.label, seconds, tuple(trends), tuple(self.checks), tuple(self.alerts), marks, found)

    def save(self, path: str) -> None:
        """Writes what was seen: ".html" is one page that needs nothing else, ".svg" a picture, ".png" too (by matplotlib), ".json"
        all figures."""
        from . import pictures

        pictures.save(self.analyze(), str(path))


def _known(value: int) -> int | None:
    return None if value == library.UNKNOWN else value


def _in_use(mark: Mark) -> dict[str, int]:
    sizes = {f"cuda:{index}": allocated for index, (allocated, _) in mark.allocators.items()}
    return sizes if mark.resident_bytes is None else {"host": mark.resident_bytes, **sizes}


def _series(place: str, source: str, points: list[tuple[int, int]]) -> Series:
    known = [(time / 1e9, size) for time, size in points if size != library.UNKNOWN]
    return Series(place, source, tuple(time for time, _ in known), tuple(size for _, size in known))


def _heap_of(samples: list[library.TrackSampleStruct]) -> list[tuple[int, int, int]]:
    return [
        (one.time_ns, one.heap_used_bytes + one.heap_free_bytes, one.heap_used_bytes)
        for one in samples
        if library.UNKNOWN not in (one.heap_used_bytes, one.heap_free_bytes)
    ]


def _points_of_allocator(marks: tuple[Mark, ...], index: int) -> list[tuple[int, int, int]]:
    found = [(mark.seconds, mark.allocators[index]) for mark in marks if index in mark.allocators]
    return [(round(seconds * 1e9), reserved, allocated) for seconds, (allocated, reserved) in found]


def _trend(series: Series, heap: list[tuple[int, int, int]] | None) -> Trend:
    points = [(round(time * 1e9), size, library.UNKNOWN) for time, size in zip(series.seconds, series.bytes)]
    trend = _trend_of(series, points)
    if trend.pattern == "leak" and heap and library.judge(heap)[0] == "fragmentation":
        from dataclasses import replace

        return replace(trend, pattern="fragmentation")
    return trend


def _trend_of(series: Series, points: list[tuple[int, int, int]]) -> Trend:
    pattern, said = library.judge(points)
    return Trend(
        series.place,
        series.source,
        pattern,
        said.confidence_ratio,
        series.bytes[0],
        said.low_bytes,
        said.high_bytes,
        said.growth_bytes,
        said.bytes_per_second,
    )
