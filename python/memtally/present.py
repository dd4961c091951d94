# SPDX-License-Identifier: MIT
"""What this process holds now: on devices by PyTorch's own counters, on the host by the pages that are present, and what
for by who holds which tensors."""

from __future__ import annotations

import gc
import resource
import sys
from typing import Any, Iterator

from . import devices, library
from .documents import Tally, tally_of
from .holders import storages

Storages = dict[int, tuple[int, Any]]
_PAGE = resource.getpagesize()
_PRESENT = 0x80  # of a page's last byte in /proc/self/pagemap


def tally() -> Tally:
    """The tally of this process at this moment: for the host and each device in use what weights, training state and caches
    of keys and values take, and what allocators hold free. What else tensors and programs have is unattributed.

    Weights are parameters and buffers of modules, training state gradients and what optimizers keep, caches those of
    transformers. On the host a tensor counts as far as its pages are present. The driver's context is no allocation of this
    process, and not in it."""
    kinds = dict(_kinds())
    places = [_host(kinds), *(_device(index, kinds) for index in range(devices.count()))]
    return tally_of({"schema": "memtally/1", "kind": "measurement", "moment": "now", "places": places})


def sizes_by_category(index: int | None) -> dict[str, int]:
    """What the tensors of a device, or of the host (None), take that have a category. On the host as far as pages are present."""
    of_each = _of_each_kind(storages(index), dict(_kinds()))
    if index is None:
        return {category: sum(_present(address, size) for address, size in ranges) for category, ranges in of_each.items()}
    return {category: sum(size for _, size in ranges) for category, ranges in of_each.items()}


def _kinds() -> Iterator[tuple[int, str]]:
    """What the storage at an address is for."""
    torch = devices.torch()
    if torch is None:
        return
    optimizers = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", ())
    caches = getattr(sys.modules.get("transformers.cache_utils"), "Cache", ())
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, torch.nn.Module):
            for tensor in (*thing._parameters.values(), *thing._buffers.values()):
                yield from _addresses(tensor, "weights")
                yield from _addresses(getattr(tensor, "grad", None) if getattr(tensor, "is_leaf", False) else None, "training")
        elif optimizers and issubclass(kind, optimizers):
            for state in list(thing.state.values()):
                for value in state.values() if isinstance(state, dict) else ():
                    yield from _addresses(value, "training")
        elif caches and issubclass(kind, caches):
            for tensor in _tensors_of_cache(thing):
                yield from _addresses(tensor, "kv_cache")


def _tensors_of_cache(cache: Any) -> Iterator[Any]:
    """As transformers has had them: a list of layers, or lists of keys and of values."""
    for layer in getattr(cache, "layers", None) or ():
        yield getattr(layer, "keys", None)
        yield getattr(layer, "values", None)
    for name in ("key_cache", "value_cache"):
        kept = vars(cache).get(name)
        yield from kept if isinstance(kept, list) else ()


def _addresses(tensor: Any, category: str) -> Iterator[tuple[int, str]]:
    if isinstance(tensor, devices.torch().Tensor):
        try:
            yield tensor.untyped_storage().data_ptr(), category
        except (RuntimeError, NotImplementedError):  # a tensor that only has a shape
            pass


def _row(category: str, resident: int, allocated: int, provenance: str) -> dict[str, Any]:
    return {
        "category": category,
        "resident_bytes": resident,
        "allocated_bytes": allocated,
        "provenance": provenance,
    }


def _place(name: str, total: int, capacity: int | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "place": name,
        "total_resident_bytes": total,
        "unattributed_bytes": total - sum(row["resident_bytes"] for row in rows),
        "capacity_bytes": capacity,
        "rows": sorted(rows, key=lambda row: -int(row["resident_bytes"])),
    }


def _of_each_kind(found: Storages, kinds: dict[int, str]) -> dict[str, list[tuple[int, int]]]:
    """The storages of each category, as (address, bytes)."""
    sorted_out: dict[str, list[tuple[int, int]]] = {}
    for address, (size, _) in found.items():
        if address in kinds:
            sorted_out.setdefault(kinds[address], []).append((address, size))
    return sorted_out


def _device(index: int, kinds: dict[int, str]) -> dict[str, Any]:
    """PyTorch rounds each block up; what it adds is unattributed."""
    said = devices.stats(index) or devices.Stats(0, 0, 0, 0, 0)
    rows = []
    for category, ranges in _of_each_kind(storages(index), kinds).items():
        size = sum(size for _, size in ranges)
        rows.append(_row(category, size, size, "measured"))
    if said.reserved > said.allocated:
        cached = said.reserved - said.allocated
        rows.append(_row("cached", cached, cached, "measured"))
    capacity = int(devices.torch().cuda.mem_get_info(index)[1])
    return _place(f"gpu:{index}", said.reserved, capacity, rows)


def _host(kinds: dict[int, str]) -> dict[str, Any]:
    total = library.resident()
    rows = []
    for category, ranges in _of_each_kind(storages(None), kinds).items():
        present = sum(_present(address, size) for address, size in ranges)
        rows.append(_row(category, present, sum(size for _, size in ranges), "measured"))
    # The kernel counts in batches, and pages come and go meanwhile: rows never add up to more than all.
    total = max(total, sum(row["resident_bytes"] for row in rows))
    capacity = library.host().memory_total_bytes
    return _place("host", total, None if capacity == library.UNKNOWN else capacity, rows)


def _present(address: int, size: int) -> int:
    """How much of a range is in memory, by its whole pages and the parts of pages at its ends."""
    first, last = address // _PAGE, (address + size - 1) // _PAGE
    if size <= 0:
        return 0
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(first * 8)
        flags = file.read((last - first + 1) * 8)[7::8]
    pages = [flag >= _PRESENT for flag in (flags[:1] + flags[-1:])]
    held = sum(flags.count(flag) for flag in range(_PRESENT, 256)) * _PAGE
    if pages and pages[0]:
        held -= address - first * _PAGE
    if pages and pages[-1]:
        held -= (last + 1) * _PAGE - (address + size)
    return held
