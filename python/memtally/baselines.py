# SPDX-License-Identifier: MIT
"""Peaks of device memory that tests had, in a text file that a review can read, and what a test takes beyond them. Knows
nothing of pytest; a peak is a size by place and category, of which "total" is all. `memtally rehearse --baseline` keeps the
same file (src/advise/baseline.h): blanks are those of ASCII, names are bytes that os.fsdecode() reads and stand in their order."""

from __future__ import annotations

import os
import re
from typing import Any

from . import library
from .documents import Estimate
from .errors import Error
from .questions import rehearse

Peaks = dict[str, dict[str, int]]  # by place, by category
TOTAL = "total"
_BLANKS = " \t\n\v\f\r"
_MOST = (1 << 64) - 1
_HEAD = """# Peaks of device memory by test or command line, place and category.
# What is not here is added. Delete the lines of one to take what it needs now.
"""


def read(path: str) -> dict[str, Peaks]:
    """By test; nothing where there is no file. ValueError says what is wrong and where."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    known: dict[str, Peaks] = {}
    offset, peaks = 0, None
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            text = os.fsdecode(line).rstrip(_BLANKS)
            if text and not text.startswith("#"):
                peaks = _read_line(text, known, peaks)
        except ValueError as error:
            raise ValueError(f"{path}: line {number}, byte {offset}: {error}") from None
        offset += len(line) + 1
    return known


def _read_line(text: str, known: dict[str, Peaks], peaks: Peaks | None) -> Peaks:
    """The peaks of the test that the line is of."""
    if text[0] not in _BLANKS:
        if text in known:
            raise ValueError("the test is here twice")
        return known.setdefault(text, {})
    place, category, size = [*re.split(f"[{_BLANKS}]+", text.strip(_BLANKS), maxsplit=3), "", ""][:3]
    if peaks is None:
        raise ValueError("a peak comes before any test")
    if not re.fullmatch("[0-9]+", size) or int(size) > _MOST:
        raise ValueError("a peak is a place, a category and a number of bytes")
    if category in peaks.setdefault(place, {}):
        raise ValueError(f"{category} of {place} is here twice")
    peaks[place][category] = int(size)
    return peaks


def write(path: str, known: dict[str, Peaks]) -> None:
    """In the order of the tests' names, so that a change shows as a change."""
    lines = [_HEAD]
    for test in sorted(known, key=os.fsencode):
        lines.append(test + "\n")
        for place in sorted(known[test]):
            sizes = known[test][place]
            for category in sorted(sizes, key=lambda name: (name != TOTAL, -sizes[name], name)):
                size = library.text_of_size(sizes[category])
                lines.append(f"    {place:<7} {category:<13} {sizes[category]:>14}  {size}\n")
    part = f"{path}.{os.getpid()}.part"
    with open(part, "wb") as file:
        file.write(os.fsencode("".join(lines)))
    os.replace(part, path)


def peaks_of(made: Estimate) -> Peaks:
    """What each device held at its peak in a rehearsal."""
    return {
        place.place: {TOTAL: place.total_bytes, **{row.category: row.bytes for row in place.rows if row.bytes}}
        for place in made.places
        if place.place != "host" and place.total_bytes
    }


def beyond(known: Peaks, found: Peaks, tolerance: float) -> dict[str, int]:
    """The most that a test may take of each place where it takes too much. A place that is new may have nothing."""
    most = {place: int(min(known.get(place, {}).get(TOTAL, 0) * (1 + tolerance) + 0.5, float(_MOST))) for place in found}
    return {place: size for place, size in most.items() if found[place][TOTAL] > size}


def sentence(place: str, known: Peaks, found: Peaks) -> str:
    """What the test takes more there, and of which categories that is."""
    text = library.text_of_size
    before, now = known.get(place, {}), found[place]
    was = before.get(TOTAL, 0)
    more = now[TOTAL] - was
    share = f" ({100 * more / was:.1f} %)" if was else ""
    growth = {name: size - before.get(name, 0) for name, size in now.items() if name != TOTAL}
    grown = sorted((-size, name) for name, size in growth.items() if size > 0)
    of = ", ".join(f"{name} {text(-size)} more" for size, name in grown)
    said = f"{place}: the test took {text(now[TOTAL])}, {text(more)}{share} more than its baseline of {text(was)}"
    return f"{said}: {of}" if of else said


def who_asked(command: list[str], on: str, place: str, most: int, made: Estimate) -> str | None:
    """The call stack that passes `most`: the same program, on devices that have no more, runs out there."""
    capacity = next((one.capacity_bytes for one in made.places if one.place == place), None)
    if capacity is None or capacity <= most:
        return None
    try:
        again = rehearse(command, device=on, suggest=False, reserved=str(capacity - most))
    except Error:
        return None
    refused: dict[str, Any] | None = again.json["rehearsal"]["refused"]
    if not refused or refused["place"] != place:
        return None
    asked, where = library.text_of_size(refused["asked_bytes"]), " < ".join(refused["stack"] or ())
    return f"it passes {library.text_of_size(most)} where {asked} are asked for" + (f" by {where}" if where else "")
