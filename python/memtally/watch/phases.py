# SPDX-License-Identifier: MIT
"""Phases: functions of engines that say what memory is for. What was allocated in a phase and
outlives it is for its category."""

import itertools
import os
import threading
import time

from . import figures, hooks, tables

MOST_TIMES = 256  # of one function: a server's steps would be without end
UNTRIED = "%s %s is none of the versions that memtally is known to read rightly (%s): totals hold, and what memory is for may not"

history = None  # of the allocator, once there is one
after = None  # called when no phase is open any more, with the categories of all that there were since none was
open_phases = {}  # number: (category, thread)
_over = set()  # categories of phases that ended while others were open
_numbers = itertools.count(1)
_lock = threading.Lock()


def begin(trace, category, name):
    if history:
        history.drain()
    number = next(_numbers)
    with _lock:
        open_phases[number] = (category, threading.get_ident())
    trace.line("b", time.monotonic_ns(), number, category, name)
    return number


def end(trace, number):
    categories = _close(number)
    if history:
        history.drain()
    trace.line("d", time.monotonic_ns(), number)
    if after and categories:
        after(categories)
    trace.flush()


def _close(number):
    """What there was when this was the last one."""
    with _lock:
        if number in open_phases:
            _over.add(open_phases.pop(number)[0])
        categories = set() if open_phases else set(_over)
        if not open_phases:
            _over.clear()
    return categories


def _in_child():
    """The parent's other threads, which hold the lock or are in a phase, are not there."""
    global _lock
    _lock = threading.Lock()
    for number, (_, thread) in list(open_phases.items()):
        if thread != threading.get_ident():
            del open_phases[number]


os.register_at_fork(after_in_child=_in_child)


def quietly(trace, what, call, *args):
    try:
        return call(*args)
    except Exception as error:
        trace.failed(what, error)
        return None


def around(trace, category, name, package=""):
    """Makes a function into a phase. The function's own errors pass through."""

    def make(function):
        times = itertools.count(1)

        def phase(*args, **kwargs):
            if next(times) > MOST_TIMES:
                return function(*args, **kwargs)
            number = quietly(trace, "phases", begin, trace, category, name)
            try:
                return function(*args, **kwargs)
            finally:
                if number:
                    quietly(trace, "phases", end, trace, number)
                if args and package:
                    quietly(trace, "figures", figures.from_attributes, trace, package, name, args[0])

        return phase

    return make


def tell_untried(trace, package):
    """Says it of a version that nobody tried, and returns which one is there."""
    version = tables.installed_version(package)
    tried = tables.untried(package, version)
    if tried:
        trace.say(UNTRIED % (package, ".".join(map(str, version)), tried))
    return version


def wrap(watch, trace, module, row):
    """A row of the table, once its module is there."""
    version = tell_untried(trace, row.package)
    if tables.holds(row, version):
        hooks.replace(module, row.function, around(trace, row.category, row.name, row.package), unseen=True)


def wrap_graphs(trace, torch):
    """torch.cuda.graph as a phase, unless an engine's own is about graphs already."""
    graph = torch.cuda.graphs.graph

    def make_enter(enter):
        def __enter__(self):
            has_one = any(category == "graphs" for category, _ in list(open_phases.values()))
            self._memtally = None if has_one else quietly(trace, "phases", begin, trace, "graphs", "graph capture")
            return enter(self)

        return __enter__

    def make_exit(leave):
        def __exit__(self, *args):
            try:
                return leave(self, *args)
            finally:
                number = getattr(self, "_memtally", None)
                if number:
                    quietly(trace, "phases", end, trace, number)

        return __exit__

    hooks.replace(graph, "__enter__", make_enter)
    hooks.replace(graph, "__exit__", make_exit)
