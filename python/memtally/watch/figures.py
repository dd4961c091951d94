# SPDX-License-Identifier: MIT
"""Figures that an engine computes or logs, kept with their names and units."""

import logging
import re
import time

from . import tables

_logged = {}  # package: [(compiled pattern, unit, name)]
_attributes = {}  # (package, phase): [(path, unit, name)]


def _read_tables():
    for row in tables.figures():
        if row.how == "log":
            _logged.setdefault(row.package, []).append((re.compile(row.pattern), row.unit, row.name))
        else:
            phase, path = row.pattern.split(": ")
            _attributes.setdefault((row.package, phase), []).append((path, row.unit, row.name))


def in_line(package, text):
    """The figures of a line of log: (value, unit, name)."""
    found = []
    for pattern, unit, name in _logged.get(package, ()):
        match = pattern.search(text)
        if match:
            found.append((match.group(1).replace(",", ""), unit, name))
    return found


def say(trace, value, unit, name):
    if not str(value).startswith("-"):
        trace.line("g", time.monotonic_ns(), value, unit, name)
        trace.flush()


def from_attributes(trace, package, phase, holder):
    for path, unit, name in _attributes.get((package, phase), ()):
        value = holder
        for part in path.split("."):
            value = getattr(value, part, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            say(trace, *((round(value * (1 << 30)), "B") if unit == "GiB" else (int(value), unit)), name)


def start(trace, readers):
    """Every logger's records pass one function, whoever handles them; each of `readers` is given the engines' lines too."""
    _read_tables()
    handle = logging.Logger.handle

    def look(self, record):
        package = record.name.partition(".")[0]
        if package in _logged:
            try:
                text = record.getMessage()
                for value, unit, name in in_line(package, text):
                    say(trace, value, unit, name)
                for read in readers:
                    read(trace, package, text)
            except Exception as error:
                trace.failed("figures", error)
        return handle(self, record)

    logging.Logger.handle = look
