# SPDX-License-Identifier: MIT
"""Generating with a model, measured: latency and peak, a row in a table for each run."""

from __future__ import annotations

import csv as csv_module
import fcntl
import io
import os
from typing import Any, Callable, TypeVar

from .errors import error_of
from .measuring import Measure

T = TypeVar("T")

_SETTINGS = ("steps", "batch_size", "max_new_tokens")
COLUMNS = (*_SETTINGS, "latency_ms", "peak_memory_bytes")


def profile_generation(
    fn: Callable[..., T], /, *args: Any, csv: str | os.PathLike[str] | None = None, **kwargs: Any
) -> tuple[T, dict[str, Any]]:
    """Calls fn(*args, **kwargs) once and returns its result and what it took: `latency_ms`, `peak_memory_bytes`.

    With `csv` a row is appended to that file: those of `steps`, `batch_size`, `max_new_tokens` that are among the
    keywords, and both figures. Several processes may append to one file."""
    if csv is not None:
        _check(csv)
    result, record = Measure()(fn, *args, **kwargs)
    metrics = {"latency_ms": record.latency_ms, "peak_memory_bytes": record.peak_memory_bytes}
    if csv is not None:
        _append(csv, {**{name: kwargs[name] for name in _SETTINGS if name in kwargs}, **metrics})
    return result, metrics


def _line(values: tuple[Any, ...]) -> str:
    text = io.StringIO()
    csv_module.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _check(path: str | os.PathLike[str]) -> None:
    """A file that is no such table is refused before anything ran."""
    try:
        with open(path, encoding="utf-8") as file:
            first = file.readline()
    except FileNotFoundError:
        return
    if first and first != _line(COLUMNS):
        raise error_of("MT_EFORMAT", f"{os.fspath(path)} is no table of generations; name another file")


def _append(path: str | os.PathLike[str], row: dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_size == 0:
            file.write(_line(COLUMNS))
        file.write(_line(tuple(row.get(column, "") for column in COLUMNS)))
        file.flush()
