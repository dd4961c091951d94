# SPDX-License-Identifier: MIT
"""Which tensors are alive, and a path of references from something that stays to each: so that one sees why."""

from __future__ import annotations

import gc
import inspect
import sys
import types
from dataclasses import dataclass
from typing import Any

from . import devices

_MOST_LOOKED_AT = 20_000  # objects on the way to a root


@dataclass(frozen=True)
class Held:
    """A piece of memory that is still held. `path` begins with a module's name or a function's local variable: what does
    not go by itself."""

    bytes: int
    what: str
    path: str


def storages(index: int | None) -> dict[int, tuple[int, Any]]:
    """Of the host (None) or a device each storage that a tensor holds: (bytes, one such tensor) by its address."""
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


def largest_tensors(index: int | None, n: int) -> list[Held]:
    """The n largest storages that tensors hold."""
    if n <= 0:
        return []
    found = storages(index)
    sizes = sorted(((size, address) for address, (size, _) in found.items()), reverse=True)[:n]
    tensors = [found[address][1] for _, address in sizes]
    found.clear()
    roots = _local_variables()
    held = []
    for (size, _), tensor in zip(sizes, tensors):
        held.append(Held(size, _what(tensor), _path_to(tensor, roots, {id(tensors)})))
    return held


def _what(tensor: Any) -> str:
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"{type(tensor).__name__} {shape} {str(tensor.dtype).removeprefix('torch.')}"


def _local_variables() -> dict[int, str]:
    """The objects that functions under way have in local variables: "step():batch" by id. The interpreter does not tell
    them as referrers."""
    roots: dict[int, str] = {}
    if sys.gettrace():  # a debugger writes back what it is shown, and must not be shown less
        return roots
    for frame in list(sys._current_frames().values()):
        step: types.FrameType | None = frame
        while step is not None:
            if step.f_code.co_flags & inspect.CO_OPTIMIZED and not _is_ours(step):
                variables = step.f_locals
                for name, value in variables.items():
                    roots.setdefault(id(value), f"{step.f_code.co_name}():{name}")
                value = None
                if type(variables) is dict:  # a copy, before 3.13, which would hold what the function lets go
                    variables.clear()
            step = step.f_back
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
