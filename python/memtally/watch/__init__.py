# SPDX-License-Identifier: MIT
"""What happens in a program's Python: who allocated what, and when. Only sees; a rehearsal's changes are in `pretend`.

Writes torch-PID.trace into each of some folders (docs/FORMATS.md has the lines). Nothing here may raise into the program: if
something fails, the trace says so once and that part is left alone from then on. Modules that need PyTorch are
imported when the program has imported it.
"""

import functools
import os
import sys

say = None  # tells the reader a sentence, once there is a trace
label = None  # tells what a tensor is for: (tensor, category, name), once PyTorch is there


class Parts:
    """What else is called at the moments that are watched; each call that fails is noted in the trace."""

    def __init__(self):
        self.at_torch = []  # (name, call(imports, trace)), when PyTorch was imported
        self.at_cuda = []  # (name, call(imports, trace, torch)), when CUDA was initialised
        self.at_log = []  # call(trace, package, text), for each line of an engine's log


def start(folders, prepare=None):
    """Watches for imports; costs a look into a dictionary for each of them. `prepare(imports, trace, parts)` adds parts."""
    from . import endings, hooks, tables, trace

    endings.start()
    global say
    writer = trace.Trace(*folders)
    say = writer.say
    _start_frames(writer)
    parts = Parts()
    imports = hooks.Watch(writer)
    imports.when_imported("torch", lambda module: _start_torch(imports, writer, parts))
    if prepare:
        prepare(imports, writer, parts)
    for row in tables.phases():
        imports.when_imported(row.module, _phase_maker(imports, writer, row))
    sys.meta_path.insert(0, imports.finder)
    return writer


def _start_frames(writer):
    from . import frames

    try:
        frames.start(writer.say)
    except Exception as error:
        writer.failed("Python's frames", error)


def _start_torch(imports, writer, parts):
    from . import session

    asked = os.environ.get("MEMTALLY_WATCH_PARTS", "").split(",")
    for name in ("layers", "operations"):
        if name in asked:
            parts.at_torch.append((name, functools.partial(_start_part, name)))

    session.start(imports, writer, parts)


def _start_part(name, imports, writer):
    from . import endings, hooks

    part = hooks.load(name).start(imports, writer, sys.modules["torch"])
    endings.before(part.write)


def _phase_maker(imports, writer, row):
    def wrap(module):
        from . import phases

        phases.wrap(imports, writer, module, row)

    return wrap
