# SPDX-License-Identifier: MIT
"""Writing the trace of one process: lines that are gathered and appended to a file.

The file is opened anew each time, since a program may close any descriptor, and each process has
one of its own, made when there is something to say. What was written survives the process.
"""

import os
import threading
import time

FLUSH_AT = 512  # lines


class Trace:
    def __init__(self, *folders):
        self.folders = folders
        self.lock = threading.RLock()
        self.lines = []
        self.pid = 0
        self.said = set()
        self.broken = False
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self):
        self.lock = threading.RLock()
        self.lines = []
        self.said = set()

    def line(self, *fields):
        """One line; the fields are joined by blanks."""
        self.add(" ".join(map(str, fields)))

    def add(self, text):
        with self.lock:
            self.lines.append(text)
            if len(self.lines) >= FLUSH_AT:
                self.flush()

    def add_all(self, lines):
        with self.lock:
            self.lines.extend(lines)
            if len(self.lines) >= FLUSH_AT:
                self.flush()

    def flush(self):
        with self.lock:
            lines, self.lines = self.lines, []
            if not lines or self.broken:
                return
            if self.pid != os.getpid():
                self.pid = os.getpid()
                lines.insert(0, "memtally-torch 1")
            try:
                data = ("\n".join(lines) + "\n").encode("utf-8", "replace")
                for folder in self.folders:
                    self._append(folder, data)
            except OSError:
                self.broken = True

    def _append(self, folder, data):
        path = os.path.join(folder, "torch-%d.trace" % self.pid)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def say(self, text, once=None):
        """A sentence for the reader, each `once` (or text) only one time."""
        if (once or text) in self.said:
            return
        self.said.add(once or text)
        clean = "".join(c if c.isprintable() else " " for c in text)[:400]
        self.line("n", time.monotonic_ns(), clean)
        self.flush()

    def failed(self, what, error):
        """Something of ours went wrong and is left alone from now on."""
        self.say("The helper in Python gave up on %s: %s: %s" % (what, type(error).__name__, error), once="failed " + what)
