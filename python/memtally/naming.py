# SPDX-License-Identifier: MIT
"""Telling a recorder what memory is for. In a program that is not recorded each call does nothing."""

from __future__ import annotations

import ctypes
import functools
import sys
from types import TracebackType
from typing import Any, Callable

from . import library
from .errors import error_of

_INT, _TEXT, _SIZE = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
# As <memtally/scope.h> declares them.
_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "scope_begin": (_INT, _TEXT),
    "scope_end": (),
    "label": (_SIZE, _SIZE, _INT, _TEXT),
    "label_block": (_SIZE, _SIZE, _INT, _TEXT),
    "mark": (_TEXT,),
}


@functools.cache
def _hook(name: str) -> Callable[..., None] | None:
    """A function of the recorder where it is preloaded."""
    try:
        function = getattr(ctypes.PyDLL(None), "memtally_hook_" + name)
    except (AttributeError, OSError):
        return None
    function.restype = None
    function.argtypes = _PARAMETERS[name]
    return function  # type: ignore[no-any-return]


class scope:
    """What the thread allocates on the host within `with memtally.scope("kv_cache", "my cache"):` is of that category.
    Scopes nest. What PyTorch holds on a device is told by `label`."""

    def __init__(self, category: str, name: str = "") -> None:
        self._category = library.category(category)
        self._name = name.encode()

    def __enter__(self) -> scope:
        begin = _hook("scope_begin")
        if begin:
            begin(self._category, self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end = _hook("scope_end")
        if end:
            end()


def mark(name: str) -> None:
    """Marks this moment in the recording."""
    hook = _hook("mark")
    if hook:
        hook(name.encode())


def label(memory: Any, category: str, name: str = "") -> None:
    """Says what the memory of a tensor, an array or any other buffer is for, until it is freed. A tensor may be on a
    device."""
    number = library.category(category)
    helper = getattr(sys.modules.get("_memtally_helper.watch"), "label", None)
    if helper and hasattr(memory, "untyped_storage"):
        helper(memory, category, name or category)
        return
    hook = _hook("label")
    if not hook:
        return
    address, size = _range_of(memory)
    if address and size:
        hook(address, size, number, (name or category).encode())


def _range_of(memory: Any) -> tuple[int, int]:
    """Where a buffer lies; nowhere for what is not in the host's memory."""
    if hasattr(memory, "untyped_storage"):
        if not memory.is_cpu:
            return 0, 0
        storage = memory.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    interface = getattr(memory, "__array_interface__", None)
    if interface and interface.get("strides") is None:
        return int(interface["data"][0]), int(memory.nbytes)
    with memoryview(memory) as view:
        if not view.contiguous:
            raise error_of("MT_EARG", "the buffer is in pieces; label what it is a view of")
        if view.readonly:
            raise error_of("MT_EARG", "the buffer cannot be written, so where it lies is not to be had")
        return ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view.cast("B"))), view.nbytes
