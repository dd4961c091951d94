# SPDX-License-Identifier: MIT
"""The last words of a process: what has not been written yet is written before it ends.

Children of multiprocessing end by os._exit(), which knows nothing of atexit, and a program may
become another one by os.exec…(). A signal that ends a process asks nobody: by then the allocator's
thread has told all but the last tenth of a second. No handler is set, since one in Python would
keep a program that waits in C from being ended.
"""

import atexit
import os
import posix

ENDS = ("_exit", "abort", "execv", "execve")
_calls = []


def start():
    """Registered before the program's own, so that it comes after them."""
    atexit.register(finish)


def before(call):
    """`call` is made once before the process ends. The first of them puts itself before os's functions."""
    _calls.append(call)
    if len(_calls) == 1:
        for name in ENDS:
            function = getattr(os, name)
            end = _after_finish(function)
            os.__dict__[name] = posix.__dict__[name] = end  # pickle looks for it in posix
            if function in os.supports_fd:
                os.supports_fd.add(end)


def finish():
    for call in list(_calls):
        try:
            call()
        except Exception:  # the program ends as it would have
            pass


def _after_finish(function):
    import functools

    from . import hooks

    @functools.wraps(function)
    def end(*args, **kwargs):
        finish()
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            hooks.leave_out_own_frames(error)
            raise

    return end
