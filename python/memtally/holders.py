# SPDX-License-Identifier: MIT
"""Which tensors and other large objects are alive, and a path of references from something that stays to each: so that one
sees why."""

from __future__ import annotations

import array
import collections
import gc
import inspect
import sys
import types
from dataclasses import dataclass
from typing import Any, Iterator

from . import devices

_MOST_LOOKED_AT = 20_000  # objects on the way to a root
_LEAST_SIZE = 1 << 20  # of an object that is no tensor
_AT_A_TIME = 10_000  # objects whose references are listed
_KINDS = {bytes, bytearray, str, list, tuple, dict, set, frozenset, collections.deque, array.array}


@dataclass(frozen=True)
class Held:
    """A piece of memory that is still held. `path` begins with a module's name or a function's local variable: what does
    not go by itself."""

    bytes: int
    what: str
    path: str


def storages(index: int | None) -> dict[int, tuple[int, Any]]:
    """Each storage of the host (None) or of a device that a tensor holds: (bytes, one such tensor) by its address."""
    torch = devices.torch()
    found: dict[int, tuple[int, Any]] = {}
    for thing in gc.get_objects() if torch else ():
        # By its type alone: asking any object for attributes may run code of its own.
        if not issubclass(type(thing), torch.Tensor):
            continue
        for tensor in (thing, thing.grad if thing.is_leaf else None):
            if tensor is not None and _place_of(tensor) == index:
                _note_storage(tensor, found)
    found.pop(0, None)
    return found


def _place_of(tensor: Any) -> Any:
    if tensor.is_cuda:
        return tensor.device.index
    return None if tensor.is_cpu else "elsewhere"


def _note_storage(tensor: Any, found: dict[int, tuple[int, Any]]) -> None:
    try:
        storage = tensor.untyped_storage()
        found.setdefault(storage.data_ptr(), (storage.nbytes(), tensor))
    except (RuntimeError, NotImplementedError):  # a tensor that only has a shape
        pass


def largest_objects(index: int | None, n: int) -> list[Held]:
    """The n largest storages that tensors hold; on the host also buffers, arrays of numpy and containers, as they are
    by themselves."""
    if n <= 0:
        return []
    found = storages(index)
    if index is None:
        found.update((id(thing), (size, thing)) for size, thing in _large_objects())
    keys = sorted(found, key=lambda key: -found[key][0])[:n]
    sizes, things = [found[key][0] for key in keys], [found[key][1] for key in keys]
    found.clear()
    roots = _local_variables()
    held = []
    for size, thing in zip(sizes, things):
        held.append(Held(size, _what(thing), _path_to(thing, roots, {id(things)})))
    return held


def _large_objects() -> Iterator[tuple[int, Any]]:
    """A buffer is not among the objects that the collector knows; what refers to it is."""
    ndarray = getattr(sys.modules.get("numpy"), "ndarray", None)
    kinds, size_of = {*_KINDS, ndarray}, sys.getsizeof
    known = gc.get_objects()
    own = {id(known)}
    for at in range(0, len(known), _AT_A_TIME):
        part = known[at : at + _AT_A_TIME]
        things = part + gc.get_referents(*part)
        own |= {id(part), id(things)}
        for thing in things:
            if type(thing) in kinds and size_of(thing) >= _LEAST_SIZE and id(thing) not in own:
                yield size_of(thing), thing
    for frame in _frames():
        for thing in _variables(frame).values():
            if type(thing) in kinds and size_of(thing) >= _LEAST_SIZE:
                yield size_of(thing), thing


def _what(thing: Any) -> str:
    if not hasattr(thing, "dtype"):
        return type(thing).__name__
    shape = "x".join(map(str, thing.shape)) or "scalar"
    return f"{type(thing).__name__} {shape} {str(thing.dtype).removeprefix('torch.')}"


def _frames() -> Iterator[types.FrameType]:
    """The functions that are under way, of which the interpreter does not tell what they refer to."""
    if sys.gettrace():  # a debugger writes back what it is shown, and must not be shown less
        return
    for frame in list(sys._current_frames().values()):
        step: types.FrameType | None = frame
        while step is not None:
            if step.f_code.co_flags & inspect.CO_OPTIMIZED and not _is_ours(step):
                yield step
            step = step.f_back


def _variables(frame: types.FrameType) -> dict[str, Any]:
    """A copy. Before 3.13 the frame keeps the one that it made for this, which would hold what the function lets go."""
    made = frame.f_locals
    copy = dict(made)
    if type(made) is dict:
        made.clear()
    return copy


def _local_variables() -> dict[int, str]:
    """The objects that functions under way have in local variables: "step():batch" by id."""
    roots: dict[int, str] = {}
    for frame in _frames():
        for name, value in _variables(frame).items():
            roots.setdefault(id(value), f"{frame.f_code.co_name}():{name}")
        value = None
    return roots


def _is_ours(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(__package__ + ".")


def path_to(thing: Any) -> str:
    """A shortest path of references to an object, from a module or a local variable, as code that reaches it."""
    return _path_to(thing, _local_variables(), set())


def _path_to(thing: Any, roots: dict[int, str], hidden: set[int]) -> str:
    objects, parents, steps = [thing], [-1], [""]
    modules = _modules()
    seen = {id(thing), id(objects), id(parents), id(steps), id(roots), *hidden}
    at = 0
    while at < len(objects) < _MOST_LOOKED_AT:
        root = roots.get(id(objects[at]))
        if root:
            return root + _way(at, parents, steps)
        for referrer in gc.get_referrers(objects[at]):
            if id(referrer) in seen or isinstance(referrer, types.FrameType):
                continue
            step = _step(referrer, objects[at])
            if id(referrer) in modules:
                return modules[id(referrer)] + "." + step[2:-2] + _way(at, parents, steps)
            seen.add(id(referrer))
            objects.append(referrer)
            parents.append(at)
            steps.append(step)
        referrer = None
        at += 1
    if len(objects) == 1:
        return "held by code that is not Python's"
    return f"<{type(objects[1]).__name__}>" + _way(1, parents, steps)


def _modules() -> dict[int, str]:
    """The name of each module by the id of its names; of one with several names the first."""
    names: dict[int, str] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType):
            names.setdefault(id(vars(module)), name)
    return names


def _way(at: int, parents: list[int], steps: list[str]) -> str:
    """From the object at that number to the one that is looked for."""
    way = []
    while parents[at] >= 0:
        way.append(steps[at])
        at = parents[at]
    text = ""
    for number, step in enumerate(way):
        # An object's dictionary is no step of its own: what it has is the object's.
        if number and way[number - 1] == _OWN_DICTIONARY:
            step = "." + step[2:-2]
        text += step if step != _OWN_DICTIONARY else ""
    return text


_OWN_DICTIONARY = "__dict__"


def _step(referrer: Any, held: Any) -> str:
    """How the referrer reaches what it holds: ".weight", "[3]", "['x']"."""
    if type(referrer) is dict:
        return f"[{next((key for key, value in list(referrer.items()) if value is held), '?')!r}]"
    if type(referrer) in (list, tuple):
        return f"[{next((at for at, value in enumerate(referrer) if value is held), '?')}]"
    try:
        own = object.__getattribute__(referrer, "__dict__")
    except (AttributeError, TypeError):
        return f".<{type(referrer).__name__}>"
    if own is held:
        return _OWN_DICTIONARY
    name = next((key for key, value in list(own.items()) if value is held), None) if isinstance(own, dict) else None
    return f".{name}" if name else f".<{type(referrer).__name__}>"
