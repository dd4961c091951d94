#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Call stacks have Python's functions: what the interpreter says of a block's stack stands in the report, for each
version of Python on this machine."""

import functools
import glob
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

import memtally
import tap

HERE = os.path.dirname(os.path.abspath(__file__))
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def interpreters():
    """One of each version: {version: path}."""
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = {}
    for path in ["python3", *("python" + version for version in VERSIONS), *glob.glob(root + "/versions/*/bin/python3")]:
        path = shutil.which(path)
        if not path:
            continue
        asked = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable, sys.abiflags)"],
                               capture_output=True, text=True, check=False)
        words = asked.stdout.split()
        if asked.returncode == 0 and len(words) == 2:
            found.setdefault(words[0], words[1])
    return {version: path for version, path in found.items() if version in VERSIONS}


def recorded(*command, options=()):
    """The stacks of a recording, of each the bytes and the frames, innermost first; and the report."""
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "recording")
        done = memtally.run("run", "-q", "-o", recording, *options, "--", *command)
        assert done.returncode == 0, done.stderr[-3000:]
        report = json.loads(memtally.must("report", "--json", "--at", "exit", "--top", "100000", recording).stdout)
        return report["stacks"]["entries"], done


def assert_stacks_are_as_said(path, options=()):
    with tempfile.TemporaryDirectory() as folder:
        figures = os.path.join(folder, "said")
        stacks, _ = recorded(path, os.path.join(HERE, "frames_program.py"), figures, options=options)
        with open(figures, encoding="utf-8") as file:
            said = json.load(file)
    assert len(said) > 35, said
    for size, frames in said.items():
        seen = [stack for stack in stacks if is_in(frames, stack["frames"])]
        assert seen and sum(stack["bytes"] for stack in seen) >= int(size), (path, size, frames, [
            stack for stack in stacks if stack["bytes"] // 65536 == int(size) // 65536])
    return stacks


def is_in(wanted, frames):
    """Whether Python's frames are these; native ones may stand between them."""
    return [frame for frame in frames if frame.endswith(")") and ":" in frame] == wanted


def test_stacks_are_as_the_interpreter_says():
    found = interpreters()
    assert found
    for version, path in sorted(found.items()):
        stacks = assert_stacks_are_as_said(path)
        tap.comment(f"Python {version}: {len(stacks)} stacks")


def test_stacks_of_every_block_are_as_the_interpreter_says():
    for path in interpreters().values():
        assert_stacks_are_as_said(path, ("--depth", "full"))


def test_python_stands_where_the_interpreter_ran_it_when_stacks_are_unwound():
    for version, path in interpreters().items():
        stacks = assert_stacks_are_as_said(path, ("--stacks", "unwind"))
        woven = [stack["frames"] for stack in stacks if any(frame.startswith("called_back (") for frame in stack["frames"])]
        assert woven, stacks
        for frames in woven:
            # sorted() and map() are C between called_back() and what they call.
            outer = next(i for i, frame in enumerate(frames) if frame.startswith("called_back ("))
            between = [frame for frame in frames[:outer] if frame.startswith(("builtin_sorted", "map_next", "list_"))]
            if not between:
                tap.comment(f"Python {version}: no native frames: {frames}")


def test_without_python_there_are_no_frames():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(HERE, "frames_program.py")
        stacks, _ = recorded(sys.executable, program, os.path.join(folder, "said"), options=("--no-python",))
    assert stacks and not any("frames_program.py" in frame for stack in stacks for frame in stack["frames"]), stacks


def test_threads_that_outlive_the_interpreter_are_harmless():
    """Threads that allocate without the interpreter's lock while it ends, in a call that lasts longer than that: CPython itself
    may fall over a thread that wants the lock then."""
    code = ("import ctypes, threading, time\n"
            "library = ctypes.CDLL(None)\n"
            "def work():\n"
            "    found = ctypes.create_string_buffer(256)\n"
            "    library.glob(b'{' + b','.join([b'/usr'] * 100) + b'}/*/*/*', 1 << 10, None, found)\n"  # GLOB_BRACE
            "    time.sleep(60)\n"
            "for _ in range(4):\n"
            "    threading.Thread(target=work, daemon=True).start()\n"
            "time.sleep(0.1)\n")
    for path in interpreters().values():
        for depth in ("default", "full"):
            for _ in range(3):
                recorded(path, "-c", code, options=("--depth", depth))


@functools.cache
def watcher():
    spec = importlib.util.spec_from_file_location("frames", os.path.join(HERE, "..", "..", "python", "memtally", "watch", "frames.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Liar:
    """A recorder that reads every frame but one right."""

    def __init__(self, change):
        self.change = change
        self.layout = None

    def show(self, number):
        frames = watcher()
        return "".join(line + "\n" for line in self.change(frames._text_of(sys._getframe(1))))

    def start(self, number):
        self.layout = number

    def stop(self, _):
        pass

    def leave_out(self, _):
        self.layout = None


def started(change):
    frames = watcher()
    liar = Liar(change)
    said = []
    frames._recorder = lambda: liar
    frames._path = lambda: "liar"
    frames.start(said.append)
    return liar.layout, said


def test_a_recorder_that_reads_wrongly_is_not_started():
    version = sys.version_info[0] * 100 + sys.version_info[1]
    assert started(lambda lines: lines) == (version, [])
    for change in (lambda lines: [], lambda lines: lines[:-1], lambda lines: [lines[0], *lines], lambda lines: lines[1:],
                   lambda lines: [line.replace(":", ":1", 1) for line in lines]):
        layout, said = started(change)
        assert layout is None and len(said) == 1 and "no functions of Python" in said[0], (layout, said)


if __name__ == "__main__":
    tap.main(globals())
