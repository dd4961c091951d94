# SPDX-License-Identifier: MIT
"""What PyTorch's operators take: for each with the shapes of its inputs how often it ran, what it left behind and what
it allocated in all, on the host and on devices.

A dispatch mode sees the operators that reach a device: what is made of several others is told as those. The
compiler takes no notice of it, and code that it has compiled tells the operators that it still calls. The
mode is entered when PyTorch has been imported, by the thread that imports it; autograd's threads have the mode of
who began the backward pass.
"""

import os
import time

from . import counts, tsv

MOST_ROWS = 65536
SHARE = 0.02  # of the time, for writing
COLUMNS = ("operation", "shapes", "count", "own_host_bytes", "total_host_bytes", "own_device_bytes", "total_device_bytes")


class Operations:
    def __init__(self, trace, torch):
        self.trace = trace
        self.torch = torch
        self.recorder = counts.frames.recorder
        self.sees_host = hasattr(self.recorder, "heap")
        self.ask = getattr(torch._C, "_cuda_memoryStats", None)
        self.rows = {}  # (operation, shapes): [count, own and total of the host, of devices]
        self.is_broken = False
        self.next_write = time.monotonic() + 1
        self.mode = None

    def start(self):
        if self.sees_host:
            self.recorder.count(1)
        os.register_at_fork(after_in_child=self.rows.clear)  # what the parent saw is the parent's to tell
        self.mode = _mode_of(self)
        self.mode.__enter__()

    def now(self):
        """[held by the host, all that it took, held by devices, all that they took]"""
        values = [0, 0, 0, 0]
        if self.sees_host:
            values[0], values[1] = self.recorder.heap(0), self.recorder.taken(0)
        if self.ask and self.torch.cuda.is_initialized():
            for device in range(self.torch._C._cuda_getDeviceCount()):
                held = self.ask(device).get("allocated_bytes", {}).get("all")
                if held:
                    values[2] += held["current"]
                    values[3] += held["allocated"]
        return values

    def quietly(self, call, *args):
        if self.is_broken:
            return None
        try:
            return call(*args)
        except Exception as error:
            self.is_broken = True
            self.trace.failed("operations", error)
            return None

    def ran(self, function, args, kwargs, before):
        after = self.now()
        key = (function.name().partition(".")[0], _shapes(args, kwargs))
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MOST_ROWS:
                key = (key[0], "(others)")
            row = self.rows.setdefault(key, [0, 0, 0, 0, 0])
        row[0] += 1
        for i in range(4):
            row[i + 1] += after[i] - before[i]
        if time.monotonic() > self.next_write:
            self.write()

    def write(self):
        began = time.monotonic()
        try:
            rows = [[name, shapes, *values] for (name, shapes), values in list(self.rows.items())]
            rows.sort(key=lambda row: (row[5], row[3], row[6], row[4]), reverse=True)
            if not self.sees_host:
                rows = [[*row[:3], "-", "-", *row[5:]] for row in rows]
            tsv.write(self.trace.folders, "operations", COLUMNS, rows)
        except Exception as error:
            self.trace.failed("operations", error)
        self.next_write = time.monotonic() + max((time.monotonic() - began) / SHARE, 1)


def _shapes(args, kwargs):
    """"[2, 16] [16, 4]": the shapes of tensors; other arguments are blanks."""
    return " ".join(_shape(value) for value in (*args, *kwargs.values()))[:300]


def _shape(value):
    shape = getattr(value, "shape", None)
    if shape is not None:
        return "[%s]" % ", ".join(map(str, shape))
    if isinstance(value, (list, tuple)) and value and hasattr(value[0], "shape"):
        return "[%s]" % ", ".join(_shape(item) for item in value[:8])
    return ""


def _mode_of(operations):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Told(TorchDispatchMode):
        @classmethod
        def ignore_compile_internals(cls):
            return True

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            before = operations.quietly(operations.now)
            result = function(*args, **kwargs)
            operations.quietly(operations.ran, function, args, kwargs, before)
            return result

    return Told()


def start(watch, trace, torch):
    operations = Operations(trace, torch)
    operations.start()
    return operations
