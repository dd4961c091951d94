# SPDX-License-Identifier: MIT
"""A function in a process of its own: its result, its exception with the traceback, what it took."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import traceback
from multiprocessing import connection
from typing import Any, Callable, TypeVar

from . import devices
from .errors import error_of
from .measuring import Measure, Record

T = TypeVar("T")


class RemoteTraceback(Exception):
    """Where in its own process a function raised: the cause of the exception that is raised here."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def _named(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", fn))


def _outcome(name: str, text: str) -> BaseException:
    import pytest

    made: BaseException = getattr(pytest, name).Exception(text)
    return made


class _Outcome:
    """What ends a test: pytest.skip() and its like. Their classes say that they are builtins, so pickle finds none of them."""

    def __init__(self, name: str, error: BaseException) -> None:
        self.parts = (name, str(error))

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[str, str]]:
        return _outcome, self.parts


def _portable(error: BaseException) -> Any:
    """What becomes the exception when it is received, or one that says what it was where it cannot be sent."""
    pytest = sys.modules.get("pytest")
    for name in ("skip", "fail", "xfail", "exit"):
        if pytest is not None and type(error) is getattr(pytest, name).Exception:
            return _Outcome(name, error)
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        return error_of("MT_ECHILD", text)


def _answer(fn: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    """What the process sends: whether it returned, with what, where it raised, the record."""
    measure = Measure()
    try:
        result, record = measure(fn, *args, **kwargs)
    except BaseException as error:
        return pickle.dumps((False, _portable(error), traceback.format_exc(), measure.record))
    try:
        return bytes(multiprocessing.reduction.ForkingPickler.dumps((True, result, "", record)))
    except Exception as error:
        complaint = error_of("MT_EUNSUPPORTED", f"what {_named(fn)} returned cannot be sent between processes: {error}")
        return pickle.dumps((False, complaint, traceback.format_exc(), record))


def _work(pipe: Any, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    pipe.send_bytes(_answer(fn, args, kwargs))
    pipe.close()


def _start_method() -> str:
    """The program's own, but a process that was forked cannot use CUDA where its parent does."""
    chosen = multiprocessing.get_start_method()
    return "spawn" if chosen == "fork" and devices.is_in_use() else chosen


def _received(pipe: Any, process: Any, name: str) -> bytes:
    connection.wait([pipe, process.sentinel])
    try:
        if pipe.poll():
            return bytes(pipe.recv_bytes())
    except (EOFError, OSError):
        pass
    process.join()
    code = process.exitcode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    raise error_of("MT_ECHILD", f"the process of {name} {how} before it returned")


def run(fn: Callable[..., T], args: Any, kwargs: Any) -> tuple[T, Record]:
    """Calls fn(*args, **kwargs) in a process that ends with this call, whatever happens here."""
    context: Any = multiprocessing.get_context(_start_method())
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(its, fn, args, kwargs), name=f"memtally-{_named(fn)}")
    try:
        process.start()
        its.close()
        has_returned, value, where, record = pickle.loads(_received(mine, process, _named(fn)))
        process.join()
    finally:
        its.close()
        mine.close()
        if process.pid is not None and process.is_alive():
            process.kill()
            process.join()
    if has_returned:
        return value, record
    value.memtally_record = record
    raise value from RemoteTraceback(where)
