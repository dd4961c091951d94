# SPDX-License-Identifier: MIT
"""What the plug-in does about one test: measures it, holds it against its limits, says what it took. Knows pytest's items
and reports; processes are none of its business."""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any, Iterator

import pytest

from . import baselines, devices, library
from .documents import html_table, table
from .errors import Error
from .holders import largest_objects
from .loading import forget
from .measuring import Measure
from .resetting import Reset, collect, reset_device, reset_host, trim

STAYED = 100_000_000  # bytes that a test may leave behind without a word
_CACHE = "memtally/peaks-by-place"
_figures: dict[str, dict[str, Any]] = {}
_postponed: set[str] = set()
_at_start: dict[str, int] = {}
_peaks: dict[str, baselines.Peaks] = {}
_baselines: dict[str, dict[str, baselines.Peaks]] = {}


class MemoryStayed(UserWarning):
    """A test left memory behind."""


def limits_of(marker: pytest.Mark) -> dict[str, int | None]:
    """The marker's sizes in bytes."""
    unknown = set(marker.kwargs) - {"limit", "device_limit", "leak", "on"}
    if marker.args or unknown:
        given = ", ".join([*map(repr, marker.args), *sorted(unknown)])
        raise pytest.UsageError(f"memory: {given} is no argument of the marker; there are limit, device_limit, leak, on")
    try:
        return {
            name: None if marker.kwargs.get(name) is None else library.size(marker.kwargs[name])
            for name in ("limit", "device_limit", "leak")
        }
    except Error as error:
        raise pytest.UsageError(f"memory: {error}") from None


def mark_all(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The limits of pytest's configuration, for each test that has none of its own."""
    words = [word.partition("=") for word in str(config.getini("memory")).split()]
    marker = pytest.mark.memory(**{name: size for name, _, size in words})
    try:
        limits_of(marker.mark)
    except pytest.UsageError as error:
        raise pytest.UsageError(f"in the configuration's memory: {error}") from None
    for item in items:
        if not item.get_closest_marker("memory"):
            item.add_marker(marker)


def _held() -> dict[str, int]:
    """What is in use once what is free was given back."""
    collect()
    trim()
    sizes = {"host": library.resident()}
    for index in range(devices.count()):
        said = devices.stats(index)
        if said:
            sizes[f"cuda:{index}"] = said.allocated
    return sizes


class Watched:
    """A test's call under measurement."""

    def __init__(self, item: pytest.Item, marker: pytest.Mark) -> None:
        self.item = item
        self.limits = limits_of(marker)
        self.is_rehearsed = bool(marker.kwargs.get("on"))
        self.before = _held() if self.limits["leak"] is not None else {}
        self.baseline_bytes = library.resident()
        if devices.is_in_use():  # what others left free within PyTorch would be no growth
            devices.torch().cuda.empty_cache()
        self.measure = Measure()
        self.measure.__enter__()

    def end(self) -> str | None:
        """What is wrong, if anything is."""
        self.measure.__exit__(None, None, None)
        record = self.measure.record
        assert record is not None
        taken = {"host": record.host.growth_bytes}
        for one in record.devices:
            if one.was_used:
                taken[f"cuda:{one.index}"] = one.reserved_growth_bytes or 0
        stayed = {}
        if self.before:
            stayed = {place: size - self.before.get(place, 0) for place, size in _held().items()}
        figures = {"taken": taken, "stayed": stayed, "method": record.host.method}
        self.item.user_properties.append(("memory", figures))
        complaints = [complaint_of(taken, stayed, self.limits), None if self.is_rehearsed else self._beyond_baseline(taken)]
        return "\n".join(filter(None, complaints)) or None

    def _beyond_baseline(self, taken: dict[str, int]) -> str | None:
        """Only what PyTorch's allocator had is known of a device that is there, not what for."""
        if not self.item.config.getoption("memory_baseline"):
            return None
        found = {place: {baselines.TOTAL: size} for place, size in taken.items() if place != "host"}
        if found:
            self.item.user_properties.append(("memory_peaks", found))
        known = baseline_of(self.item.config).get(self.item.nodeid, found)
        places = baselines.beyond(known, found, self.item.config.getoption("memory_tolerance"))
        return "\n".join(baselines.sentence(place, known, found) for place in places) or None


def complaint_of(taken: dict[str, int], stayed: dict[str, int], limits: dict[str, int | None]) -> str | None:
    text, said = library.text_of_size, []
    for place, size in taken.items():
        name = "limit" if place == "host" else "device_limit"
        limit = limits[name]
        if limit is not None and size > limit:
            said.append(f"{place}: the test took {text(size)}, {text(size - limit)} more than its {name} of {text(limit)}")
    for place, size in stayed.items():
        limit = limits["leak"]
        if limit is not None and size > limit:
            said.append(f"{place}: the test left {text(size)} behind, {text(size - limit)} more than its leak of {text(limit)}")
    return "\n".join(said) or None


def cleaned(item: pytest.Item) -> Iterator[None]:
    name, earlier = item.nodeid, getattr(sys, "last_value", None)
    before = {one.place: one.after.allocated for one in _give_back()}
    try:
        yield
    finally:
        # The frames of a test that failed hold what it had; its report is written by now.
        error = getattr(sys, "last_value", None)
        if error is not None and error is not earlier:
            forget(error)
        for one in _give_back():
            stayed = one.after.allocated - before.get(one.place, 0)
            if stayed > STAYED:
                held = largest_objects(None if one.place == "host" else int(one.place.removeprefix("cuda:")), 5)
                objects = "".join(f"\n  {library.text_of_size(one.bytes)}  {one.what}, {one.path}" for one in held)
                said = f"{name} left {library.text_of_size(stayed)} behind on {one.place}{objects}"
                warnings.warn(MemoryStayed(said), stacklevel=1)


def _give_back() -> list[Reset]:
    return [*reset_device(largest=0), reset_host(largest=0)]


# ------------------------------------------------------------------ room


def parse_places(text: str) -> dict[str, int]:
    """Sizes by place of "host=4GiB,gpu0=4GiB"."""
    found = {}
    for word in text.split(","):
        place, is_given, size = word.strip().partition("=")
        is_gpu = place.startswith("gpu") and place[3:].isdecimal()
        if not is_given or not (place == "host" or is_gpu):
            raise ValueError(f"{word!r} is not as host=4GiB or gpu0=4GiB")
        try:
            found[place] = library.size(size)
        except Error as error:
            raise ValueError(str(error)) from None
    return found


def _free(place: str) -> int | None:
    """The host's as the machine and its cgroup say, a device's as the driver says."""
    if place == "host":
        return library.host_left()
    try:
        result = library.end(library.begin(library.OptionsStruct(0, int(place[3:]), 0)))
    except Error:
        return None
    if library.UNKNOWN in (result.device_capacity_bytes, result.device_baseline_bytes):
        return None
    return int(result.device_capacity_bytes - result.device_baseline_bytes)


def _shortage(item: pytest.Item) -> str | None:
    text = library.text_of_size
    for place, wanted in parse_places(item.config.getoption("memory_min_free")).items():
        free = _free(place)
        if free is None:
            return f"memory: what {place} has free is not known here, and --memory-min-free wants {text(wanted)}"
        if free < wanted:
            return f"memory: {place} has {text(free)} free, and --memory-min-free wants {text(wanted)}"
    return None


def postpone(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Whether the test now comes at the end, once, for want of room. Workers of xdist keep the order they were given."""
    if item.nodeid in _postponed or nextitem is None or hasattr(item.config, "workerinput") or not _shortage(item):
        return False
    _postponed.add(item.nodeid)
    item.session.items.append(item)
    # What earlier tests left set up was to serve this one.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def skip_without_room(item: pytest.Item) -> None:
    shortage = _shortage(item)
    if shortage:
        pytest.skip(shortage)


def _free_of(place: str) -> int | None:
    """The same by the names that figures have; of a device that PyTorch does not use yet nothing is asked."""
    if place == "host":
        return library.host_left()
    index = int(place.removeprefix("cuda:"))
    return int(devices.torch().cuda.mem_get_info(index)[0]) if index < devices.count() else None


def _lack_of_room(taken: dict[str, int]) -> str | None:
    """Where a test that took that much in the last run finds less by now, and what this process has there."""
    text = library.text_of_size
    for place, size in taken.items():
        free = _free_of(place)
        if free is not None and size > free:
            left = _held().get(place, 0) - _at_start.get(place, 0)
            by_us = f"; {text(left)} were left there since the session began" if left > 0 else ""
            return f"memory: the test took {text(size)} of {place} in the last run, and {text(free)} are free{by_us}"
    return None


def skip_where_not_clean(item: pytest.Item) -> None:
    """With --memory-order. What earlier tests need not hold is given back first."""
    taken = _known_peaks(item.config).get(item.nodeid, {})
    if _lack_of_room(taken):
        _give_back()
        reason = _lack_of_room(taken)
        if reason:
            pytest.skip(reason)


# ------------------------------------------------------------------ all tests


def note(report: Any) -> None:
    if report.when == "call":
        figures = dict(report.user_properties)["memory"]
        _figures[report.nodeid] = {**figures, "outcome": report.outcome}
        peaks = dict(report.user_properties).get("memory_peaks")
        if peaks and report.outcome == "passed":
            _peaks[report.nodeid] = peaks


def _largest(figures: dict[str, Any]) -> int:
    return max(figures["taken"].values(), default=0)


def keep_peaks(config: pytest.Config) -> None:
    """For the next run's order."""
    if config.cache is not None and _figures:
        config.cache.set(_CACHE, {**_known_peaks(config), **{name: one["taken"] for name, one in _figures.items()}})


def _known_peaks(config: pytest.Config) -> dict[str, dict[str, int]]:
    """What tests took in the last run, by place."""
    return dict(config.cache.get(_CACHE, {})) if config.cache is not None else {}


def _baseline_path(config: pytest.Config) -> str | None:
    given = config.getoption("memory_baseline")
    return os.path.join(str(config.invocation_params.dir), given) if given else None


def baseline_of(config: pytest.Config) -> dict[str, baselines.Peaks]:
    """What tests took when they were added to the file; nothing where none is given."""
    path = _baseline_path(config)
    if path is None:
        return {}
    if path not in _baselines:
        _baselines[path] = baselines.read(path)
    return _baselines[path]


def add_to_baseline(config: pytest.Config) -> None:
    """Tests that passed and are not in the file."""
    path = _baseline_path(config)
    known = baseline_of(config)
    added = {name: one for name, one in _peaks.items() if name not in known}
    if path is not None and added:
        baselines.write(path, {**known, **added})


def sort_by_peaks(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of which nothing is known come first, in their order."""
    known = _known_peaks(config)
    items.sort(key=lambda item: max(known.get(item.nodeid, {}).values(), default=0))
    _at_start.update(_held())


def report(terminal: Any, config: pytest.Config) -> None:
    how = config.getoption("memory_report")
    rows = sorted(_figures.items(), key=lambda row: -_largest(row[1]))
    lines: list[tuple[str, ...]] = [("test", "place", "took", "left behind")]
    for name, figures in rows:
        for place, size in figures["taken"].items():
            stayed = figures["stayed"].get(place)
            left = "" if stayed is None else library.text_of_size(stayed)
            lines.append((name, place, library.text_of_size(size), left))
    if how == "text":
        terminal.section("memory")
        terminal.write_line(table(lines))
        return
    path = os.path.join(str(config.invocation_params.dir), f"memory-report.{how}")
    with open(path, "w", encoding="utf-8") as file:
        if how == "json":
            json.dump(dict(rows), file, indent=2)
            file.write("\n")
        else:
            head = '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>memory</title></head><body>'
            file.write(head + html_table(lines, "What tests took") + "</body></html>\n")
    terminal.write_line(f"memory: {path}")
