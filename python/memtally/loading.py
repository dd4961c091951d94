# SPDX-License-Identifier: MIT
"""Loading a model within limits that leave room to run it, and leaving nothing behind where that fails."""

from __future__ import annotations

import types
from typing import Any, Callable, Mapping, TypeVar, Union

from . import devices, library
from .documents import Estimate
from .errors import error_of
from .questions import Model, estimate
from .resetting import reset_device, reset_host

T = TypeVar("T")
Key = Union[int, str]  # of a device, or "cpu", as accelerate has them
Limits = dict[Key, int]

# Rows of an estimate that are there before a model runs: its weights, and the context, which the driver has taken already.
_THERE_BEFORE = ("weights", "context")
# What bitsandbytes makes of a large model's 16 bits, with scales and with embeddings that stay as they are: (what to
# ask for, share of the bytes). Of small models embeddings are more; the sentence says "about".
_SMALLER = (("8 bit weights (load_in_8bit)", 0.55), ("4 bit weights (load_in_4bit)", 0.32))


def conservative_load(
    load: Callable[..., T],
    model: Model | None = None,
    buffer: int | str = "1GiB",
    limits: Mapping[Key, int | str] | None = None,
    **settings: Any,
) -> T:
    """Calls load(max_memory=…, device_map="auto") once, after everything that can go was given back.

    The limit of a device is what the driver says is free, less `buffer`, less what running will take by the estimate of
    `model` with `settings` (those of memtally.estimate, as context=8192); without a model that is nothing. The host's is
    what is available to this process, less `buffer`. `limits` stand in place of these, by the device's number or "cpu".

    Where `load` fails, all that it left is freed, also what the exception's traceback holds, and its own exception goes
    on with a note: what was asked, what was free, which settings would fit."""
    _initialise()
    reset_device(largest=0)
    reset_host(largest=0)
    free = _free()
    expected = _expected(model, free, settings) if model is not None else None
    given = _limits(free, library.size(buffer), expected, limits or {})
    failed: BaseException
    try:
        return load(max_memory=dict(given), device_map="auto")
    except BaseException as error:
        failed = error
    forget(failed)
    _note(failed, _sentences(given, free, expected))
    # Outside of the except block, so that the interpreter's own record of the exception is gone as well.
    reset_device(largest=0)
    reset_host(largest=0)
    try:
        raise failed
    finally:
        del failed  # the frame and the exception would hold each other


def _initialise() -> None:
    """What a device has free is known once CUDA is initialised; loading would do it anyway."""
    torch = devices.torch()
    if torch is None:
        try:
            import torch  # type: ignore[no-redef, import-not-found, unused-ignore]
        except ImportError:
            return
    if torch.cuda.is_available() and not devices.is_in_use():
        torch.cuda.init()


def _free() -> Limits:
    """What is free: of each device as the driver says it, of the host what this process may still take."""
    free: Limits = {index: int(devices.torch().cuda.mem_get_info(index)[0]) for index in range(devices.count())}
    left = library.host_left()
    if left is not None:
        free["cpu"] = left
    return free


def _expected(model: Model, free: Limits, settings: Mapping[str, Any]) -> Estimate:
    """The estimate of the model on devices as large as what is free."""
    sizes = [str(size) for key, size in free.items() if key != "cpu"]
    asked = {"engine": "transformers", **({"device": sizes} if sizes else {}), **settings}
    return estimate(model, **asked)


def _running(expected: Estimate | None, key: Key) -> int:
    """What running takes at a place, at most."""
    place = expected.place("host" if key == "cpu" else f"gpu:{key}") if expected else None
    rows = [row for row in place.rows if row.category not in _THERE_BEFORE] if place else []
    return sum(row.high_bytes or row.bytes or 0 for row in rows)


def _limits(
    free: Limits, buffer: int, expected: Estimate | None, limits: Mapping[Key, int | str]
) -> Limits:
    unknown = [key for key in limits if key not in free]
    if unknown:
        known = ", ".join(map(repr, free))
        raise error_of("MT_EARG", f"limits name {unknown[0]!r}, which is none of the places that there are: {known}")
    given: Limits = {}
    for key, size in free.items():
        left = size - buffer - _running(expected, key)
        given[key] = library.size(limits[key]) if key in limits else max(0, left)
    return given


def forget(error: BaseException) -> None:
    """Frees what the frames of an exception hold, and those of what it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        _clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _clear_frames(traceback: types.TracebackType | None) -> None:
    """Also those that are in no traceback, for a library has left out its own, and that a frame in it was called by."""
    seen: set[int] = set()
    while traceback is not None:
        frame: types.FrameType | None = traceback.tb_frame
        while frame is not None and id(frame) not in seen:
            seen.add(id(frame))
            try:
                frame.clear()
                frame.f_locals  # before 3.13 a copy that somebody looked at, as pytest does, stays until it is looked at again
            except RuntimeError:  # it is under way, and so is what called it
                break
            frame = frame.f_back
        traceback = traceback.tb_next


def _note(error: BaseException, sentences: list[str]) -> None:
    """As Python 3.11 has it; 3.10 keeps the notes and does not print them."""
    try:
        error.__notes__ = [*getattr(error, "__notes__", ()), *sentences]  # type: ignore[attr-defined, unused-ignore]
    except AttributeError:  # an exception without a place for it
        pass


def _name(key: Key) -> str:
    return "host" if key == "cpu" else f"cuda:{key}"


def _sentences(given: Limits, free: Limits, expected: Estimate | None) -> list[str]:
    text = library.text_of_size
    places = [
        f"{_name(key)} was given {text(size)} of {text(free[key])} that were free"
        + (f", {text(_running(expected, key))} are kept for running" if _running(expected, key) else "")
        for key, size in given.items()
    ]
    return ["memtally: " + "; ".join(places), *(f"memtally: {advice}" for advice in _advice(given, expected))]


def _advice(given: Limits, expected: Estimate | None) -> list[str]:
    text = library.text_of_size
    weights = ((expected.json.get("model") or {}).get("weight_bytes") or 0) if expected else 0
    on_devices = sum(size for key, size in given.items() if key != "cpu")
    if not weights or not on_devices:
        return []
    if weights <= on_devices:
        return [f"the weights take {text(weights)}, which the limits have room for: loading took more than they do"]
    fitting = [f"{what}, about {text(int(weights * share))}" for what, share in _SMALLER if weights * share <= on_devices]
    lines = [f"the weights take {text(weights)} and devices have {text(on_devices)} for them"]
    if fitting:
        lines.append("these would fit: " + "; ".join(fitting))
    else:
        lines.append("no quantisation to 8 or 4 bits fits; take a smaller model, a shorter context or more devices")
    return lines
