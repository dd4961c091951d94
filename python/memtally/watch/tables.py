# SPDX-License-Identifier: MIT
"""Reading the tables of data/engines, which lie beside this file as ENGINE.NAME.tsv. Lines that begin with # and empty ones
are comments; fields are parted by tabs."""

import os
import re
from collections import namedtuple

# phases.tsv: a function of an engine (from a version on, up to one; "-" is any) that is a phase. Memory that is taken in it and
# outlives it is for its category.
Phase = namedtuple("Phase", "package since until module function category name")
# figures.tsv: where an engine says a figure, in a line of its log, or in an attribute once a function is over. A pattern's only
# group is the value; an attribute is looked up on the object whose phase has just ended ("phase: path"). One in GiB is said in bytes:
# it has all digits, which a line of log has not.
Figure = namedtuple("Figure", "package how pattern unit name")
# graphs.tsv: a function of an engine that captures CUDA graphs; of its frames at a capture the innermost one says what the graph
# is of. A value is a path in the function's locals, perhaps divided by another and less 1; | parts what is tried in turn; =
# begins a word; - is unknown. Expected is the list of the sizes that are to be captured, or its length.
Graph = namedtuple("Graph", "package since until module function batch tokens draft kind expected")
# features.tsv: what an engine leaves off in a rehearsal alone, by the line of log that says so.
Feature = namedtuple("Feature", "package pattern name")
# versions.tsv: between which versions the phases were tried, with both (docs/CONFORMANCE.md has which).
Tried = namedtuple("Tried", "package first last")


def rows(file_name, kind):
    """Those of all engines."""
    folder = os.path.dirname(os.path.abspath(__file__))
    lines = []
    for name in sorted(os.listdir(folder)):
        if name.endswith("." + file_name):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines += [line.rstrip("\n") for line in file]
    return [kind(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def phases():
    return rows("phases.tsv", Phase)


def graphs():
    return rows("graphs.tsv", Graph)


def figures():
    return rows("figures.tsv", Figure)


def features():
    return rows("features.tsv", Feature)


def untried(package, version):
    """The versions that were tried where this one is not between them, as "0.7.3 to 0.33.0"; else None."""
    for row in rows("versions.tsv", Tried):
        if row.package == package and version and not version_of(row.first) <= version <= version_of(row.last):
            return f"{row.first} to {row.last}"
    return None


def version_of(text):
    """"0.11.0rc2+cu128" as numbers that compare: (0, 11, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[+a-zA-Z]", text)[0])[:3])


def holds(row, version):
    """Whether a row is of this version; a version that is not known has every row."""
    if not version:
        return True
    since = row.since == "-" or version_of(row.since) <= version
    return since and (row.until == "-" or version <= version_of(row.until))


def installed_version(package):
    try:
        from importlib.metadata import version

        return version_of(version(package))
    except Exception:
        return ()
