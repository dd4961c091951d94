# SPDX-License-Identifier: MIT
"""Giving back what can be given back, and saying what is still held, and by whom.

Nothing here sleeps, and no setting is changed: what settings would help is said in `advice`.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import devices, library
from .errors import error_of
from .holders import Held, largest_objects
from .present import sizes_by_category

_MOST_COLLECTIONS = 10  # each may free what only the next one sees


class Pool(Protocol):
    """All that is asked of a pool beside PyTorch's. CuPy's calls are unconfirmed, for it cannot be tried without a GPU."""

    name: str

    def used_bytes(self, index: int) -> int: ...

    def total_bytes(self, index: int) -> int: ...

    def free(self, index: int) -> None: ...


class CuPyPool:
    """CuPy's own pools, where the program has imported it."""

    name = "CuPy's pool"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def used_bytes(self, index: int) -> int:
        with self._cupy.cuda.Device(index):
            return int(self._cupy.get_default_memory_pool().used_bytes())

    def total_bytes(self, index: int) -> int:
        with self._cupy.cuda.Device(index):
            return int(self._cupy.get_default_memory_pool().total_bytes())

    def free(self, index: int) -> None:
        with self._cupy.cuda.Device(index):
            self._cupy.get_default_memory_pool().free_all_blocks()
        if index == 0:
            self._cupy.get_default_pinned_memory_pool().free_all_blocks()


def pools_of_cupy() -> list[Pool]:
    cupy = sys.modules.get("cupy")
    return [CuPyPool(cupy)] if hasattr(cupy, "get_default_memory_pool") else []


class OwnPools:
    """The pools that the program has of memtally."""

    name = "memtally's pools"

    def __init__(self, pooling: Any) -> None:
        self._pooling = pooling

    def used_bytes(self, index: int | None) -> int:
        return int(self._pooling.held(index)[0])

    def total_bytes(self, index: int | None) -> int:
        return int(self._pooling.held(index)[1])

    def free(self, index: int | None) -> None:
        self._pooling.give_back(index)


def own_pools() -> list[OwnPools]:
    pooling = sys.modules.get(f"{__package__}.pooling")
    return [OwnPools(pooling)] if pooling else []


def _pools() -> list[Pool]:
    return [*pools_of_cupy(), *own_pools()]


@dataclass(frozen=True)
class Holding:
    """Bytes at one moment: `allocated` has tensors in it, `cached` is held free by allocators. On the host `allocated`
    is what is resident, and nothing is known of what is cached. `by_category` divides all of it as memtally.tally() does."""

    allocated: int
    cached: int | None
    by_category: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.allocated + (self.cached or 0)


@dataclass(frozen=True)
class Reset:
    """What a reset did at one place, and what is still held there: the largest first, each with a path of references."""

    place: str
    before: Holding
    after: Holding
    n_collected: int
    held: tuple[Held, ...] = ()
    problems: tuple[str, ...] = ()
    advice: tuple[str, ...] = field(default=())

    @property
    def freed(self) -> int:
        return self.before.total - self.after.total

    @property
    def freed_by_category(self) -> dict[str, int]:
        before, after = self.before.by_category, self.after.by_category
        return {name: before.get(name, 0) - after.get(name, 0) for name in {**before, **after}}

    def __str__(self) -> str:
        text = library.text_of_size
        lines = [
            f"{self.place}: {text(self.before.total)} before, {text(self.after.total)} after, {text(self.freed)} freed",
            *(f"  {text(one.bytes)}  {one.what}\n      {one.path}" for one in self.held),
            *(f"  {problem}" for problem in self.problems),
            *(f"  {sentence}" for sentence in self.advice),
        ]
        return "\n".join(lines)


def collect() -> int:
    """Until nothing more goes; what finalizers leave behind needs another round."""
    collected = 0
    for _ in range(_MOST_COLLECTIONS):
        now = gc.collect()
        collected += now
        if not now:
            break
    return collected


def _try(problems: list[str], what: str, call: Any, *arguments: Any) -> None:
    """A step that fails leaves the others to be done."""
    try:
        call(*arguments)
    except Exception as error:
        problems.append(f"{what}: {error}")


def _holding(index: int, looks: bool) -> Holding:
    """`looks` says whether objects are looked at for what they are, which takes as long as a collection."""
    said = devices.stats(index)
    pools = _pools()
    used = sum(pool.used_bytes(index) for pool in pools)
    total = sum(pool.total_bytes(index) for pool in pools)
    allocated, reserved = (said.allocated, said.reserved) if said else (0, 0)
    cached = reserved - allocated + total - used
    return Holding(allocated + used, cached, _categories(index, allocated + used, cached, looks))


def _holding_of_host(looks: bool) -> Holding:
    resident = library.resident()
    return Holding(resident, None, _categories(None, resident, 0, looks))


def _categories(index: int | None, allocated: int, cached: int, looks: bool) -> dict[str, int]:
    """What is allocated and has no category is unattributed."""
    known = sizes_by_category(index) if looks else {}
    rest = {"unattributed": max(0, allocated - sum(known.values())), "cached": cached}
    return {name: size for name, size in {**known, **rest}.items() if size}


def _empty(index: int, problems: list[str]) -> None:
    """Workspaces and caches of one device; the allocator's own figures then count from here."""
    if devices.is_in_use():
        torch = devices.torch()
        devices.synchronize(index)
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear:
            _try(problems, "cuBLAS workspaces", clear)
        with torch.cuda.device(index):
            _try(problems, "PyTorch's cache", torch.cuda.empty_cache)
    for pool in _pools():
        _try(problems, pool.name, pool.free, index)


def _count_anew(index: int, problems: list[str]) -> None:
    if devices.is_in_use():
        _try(problems, "peaks", devices.reset, index)
        _try(problems, "statistics", devices.torch().cuda.reset_accumulated_memory_stats, index)


def _advice(after: Holding) -> tuple[str, ...]:
    """What is reserved is fragmented if no tensor has it and the driver does not get it back."""
    if not after.cached or after.cached < after.total // 10:
        return ()
    return (
        f"{library.text_of_size(after.cached)} cannot be given back, for each segment of it has a tensor in it; start the "
        "program with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )


def reset_device(device: Any = "all", largest: int = 5) -> list[Reset]:
    """Gives back what a device, or each ("all"), need not hold: collects cycles until nothing more goes, synchronises, clears
    cuBLAS workspaces, empties the caches of PyTorch, CuPy and memtally's pools with the pools of graphs that are gone, and has peaks and
    statistics count anew. Measurements under way keep their peaks. Says what was freed, and the `largest` tensors that
    stay, each with a path of references that holds it; with 0 it looks at no tensors, and tells none by category. Where no device
    is in use, it returns nothing."""
    indices = list(range(devices.count())) if device == "all" else [_checked(devices.index_of(device))]
    before = {index: _holding(index, largest > 0) for index in indices}
    collected = collect()
    resets = []
    for index in indices:
        problems: list[str] = []
        _empty(index, problems)
        _count_anew(index, problems)
        after, held = _holding(index, largest > 0), tuple(largest_objects(index, largest))
        resets.append(
            Reset(f"cuda:{index}", before[index], after, collected, held, tuple(problems), _advice(after))
        )
    return resets


def _checked(index: int | None) -> int:
    if index is None:
        raise error_of("MT_EARG", "that is no device; reset_host() is for the host")
    if index >= devices.count():
        raise error_of("MT_ENOTFOUND", f"there is no device {index} in use; PyTorch has {devices.count()}")
    return index


def reset_host(largest: int = 5) -> Reset:
    """The same for this process's memory on the host: collects cycles and has malloc() give its free pages back. Says which
    tensors and other large objects stay."""
    before = _holding_of_host(largest > 0)
    collected = collect()
    problems: list[str] = []
    empty_pinned = getattr(getattr(devices.torch(), "_C", None), "_host_emptyCache", None)
    if empty_pinned and devices.is_in_use():
        _try(problems, "pinned memory", empty_pinned)
    for pool in own_pools():
        _try(problems, pool.name, pool.free, None)
    _try(problems, "malloc", trim)
    after = _holding_of_host(largest > 0)
    return Reset("host", before, after, collected, tuple(largest_objects(None, largest)), tuple(problems))


def trim() -> None:
    """Other C libraries than glibc have no such call; then there is nothing to do."""
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release:
        release(0)
