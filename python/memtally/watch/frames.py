# SPDX-License-Identifier: MIT
"""Lets the recorder in this process put Python's functions into call stacks.

The recorder reads the interpreter's own structs, which no version promises to keep. Before it may, what it reads
is compared here with what the interpreter says of the same frames: in plain calls, under C functions that call
back, in a generator, a coroutine and a class body. Where nothing agrees, the stacks have native frames alone and the reader
is told once.
"""

import atexit
import os
import sys

CANDIDATES = 8  # layouts of one version
FRAMES = 40  # that the recorder has room for
LIBRARY = "libmemtally-record.so"
recorder = None  # of this process, as a module, once it is started
UNREAD = "Call stacks have no functions of Python: the frames of %s %s cannot be read"


def start(say):
    """Once, before the program's code. `say(text)` tells the reader."""
    global recorder
    if not _path():
        return
    layout = None
    if sys.implementation.name == "cpython" and not getattr(sys, "abiflags", ""):
        recorder = _recorder()
        layout = _layout(recorder)
    if layout is None:
        if recorder:
            recorder.leave_out(None)
        say(UNREAD % (sys.implementation.name, sys.version.split()[0]))
        return
    atexit.register(recorder.stop, None)
    recorder.start(layout)


def _recorder():
    """The preloaded recorder as a module."""
    from _imp import create_dynamic
    from importlib.machinery import ModuleSpec

    return create_dynamic(ModuleSpec("memtally_frames", None, origin=_path()))


def _path():
    """Where the recorder is, if it is preloaded."""
    for path in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if os.path.basename(path) == LIBRARY:
            return path
    return None


def _layout(recorder):
    """The number of a layout by which the recorder reads what the interpreter says."""
    version = sys.version_info[0] * 100 + sys.version_info[1]
    for candidate in range(CANDIDATES):
        number = candidate * 1000 + version
        seen = []
        for place in (_plainly, _called_back, _in_a_generator, _in_a_coroutine, _in_a_class):
            place(lambda: seen.append(_agrees(recorder, number)))
        if seen and all(seen):
            return number
    return None


def _agrees(recorder, number):
    return recorder.show(number).splitlines() == _text_of(sys._getframe())


def _text_of(frame):
    lines = []
    while frame is not None and len(lines) < FRAMES:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)[:160]
        path = code.co_filename
        for folder in ("/site-packages/", "/dist-packages/"):
            path = path.rpartition(folder)[2]
        lines.append("%s (%s:%d)" % (name, path[-200:], frame.f_lineno))
        frame = frame.f_back
    return lines


def _plainly(call):
    call()


def _called_back(call):
    list(map(lambda _: [call() for _ in (0,)], (0,)))
    sorted((1, 0), key=lambda item: call() or item)


def _in_a_generator(call):
    def inner():
        yield call()

    def outer():
        yield from inner()

    list(outer())


def _in_a_coroutine(call):
    async def inner():
        call()

    async def outer():
        await inner()

    try:
        outer().send(None)
    except StopIteration:
        pass


def _in_a_class(call):
    class Named:
        Ω = call()

        @property
        def value(self):
            return call()

    return Named().value
