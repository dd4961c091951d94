# SPDX-License-Identifier: MIT
"""Allocates blocks of known sizes in many kinds of calls, and writes down the stack that each was asked for in, as the
interpreter itself tells it: {bytes: ["name (file:line)", ...]}, innermost first."""

import gc
import json
import os
import sys
import threading

MIB = 1 << 20
said = {}
kept = []
size = 4 * MIB


def take():
    global size
    size += 65536
    kept.append(bytearray(size - 1)); said[size] = stack(sys._getframe())  # noqa: E702, one line has both


def stack(frame):
    lines = []
    while frame is not None:
        code = frame.f_code
        lines.append("%s (%s:%d)" % (getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return lines


class Model:
    def forward(self):
        take()

    def __getattr__(self, name):
        take()
        return 1


def generator():
    for _ in range(2):
        yield take()


async def coroutine():
    async def inner():
        take()

    await inner()


def deep(n):
    return deep(n - 1) if n else take()


def called_back():
    list(map(lambda _: take(), [0]))
    sorted([1], key=lambda _: take() or 0)


def many_lines():
    filler = [
        1,
    ]
    try:
        raise ValueError(
            filler
        )
    except ValueError:
        take()
    finally:
        take()


def made_anew():
    """Code objects that come and go at one address."""
    for i in range(20):
        names = {"take": take}
        exec(compile("\n" * i + "def made_%d():\n    take()\nmade_%d()\n" % (i, i), "made-%d" % i, "exec"), names)
        del names
        gc.collect()


def ünïcode_名():
    take()


def main(path):
    take()
    Model().forward()
    Model().anything
    list(generator())
    deep(8)
    called_back()
    many_lines()
    made_anew()
    ünïcode_名()
    try:
        coroutine().send(None)
    except StopIteration:
        pass
    for _ in range(4):
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file)
    if os.fork() == 0:
        deep(3)
        os._exit(0)
    os.wait()


main(sys.argv[1])
os._exit(0)  # what is kept is still there at the end
