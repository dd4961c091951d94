# SPDX-License-Identifier: MIT
"""Reading the tables beside this file: graphs.tsv, phases.tsv, figures.tsv and versions.tsv. Lines that begin with # and
empty ones are comments; fields are parted by tabs."""

import os
import re
from collections import namedtuple

# A function of an engine (from a version on, up to one; "-" is any) that is a phase.
Phase = namedtuple("Phase", "package since until module function category name")
# Where an engine says a figure: in a line of its log, or in an attribute once a function is over.
Figure = namedtuple("Figure", "package how pattern unit name")
# A function of an engine that captures CUDA graphs, and where in its locals it says what a graph is of.
Graph = namedtuple("Graph", "package since until module function batch tokens draft kind expected")
# Between which versions of an engine the phases were tried.
Tried = namedtuple("Tried", "package first last")


def rows(file_name, kind, beside=__file__):
    path = os.path.join(os.path.dirname(os.path.abspath(beside)), file_name)
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    return [kind(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def phases():
    return rows("phases.tsv", Phase)


def graphs():
    return rows("graphs.tsv", Graph)


def figures():
    return rows("figures.tsv", Figure)


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
