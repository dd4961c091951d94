# SPDX-License-Identifier: MIT
"""A pool of the library's for buffers that come and go, and the same pool in the place of PyTorch's allocator."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from dataclasses import asdict, dataclass
from importlib import import_module
from types import TracebackType
from typing import Any

from . import library, places
from .errors import Error, error_of

_LEGACY_STREAM = 1  # CU_STREAM_LEGACY: the default stream, which has an order of its own
BACKENDS = ("torch", "cupy", "host")
_LONG_LIVED = 1  # enum mt_pool_hint
KEEPS = ("nothing", "long-lived", "all")  # as in enum mt_pool_keep


@dataclass(frozen=True)
class PoolStats:
    """What a pool did since it was made, and what it holds now."""

    in_use_bytes: int
    held_bytes: int
    peak_in_use_bytes: int
    peak_held_bytes: int
    largest_free_bytes: int
    allocations: int
    releases: int
    hits: int
    misses: int
    failures: int
    pages_moved: int
    pages_returned: int

    @property
    def hit_rate(self) -> float:
        """The share of all requests that needed no new memory; 0 if there was none."""
        return self.hits / self.allocations if self.allocations else 0.0

    @property
    def utilization(self) -> float:
        """What is in use of what is held; 1 where nothing is held."""
        return self.in_use_bytes / self.held_bytes if self.held_bytes else 1.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "hit_rate": self.hit_rate, "utilization": self.utilization}

    def __str__(self) -> str:
        text = library.text_of_size
        return (
            f"{text(self.in_use_bytes)} in use of {text(self.held_bytes)} held; {self.allocations} requests, "
            f"{self.hits} hits, {self.misses} misses"
        )


def _stats_of(read: list[library.PoolStatsStruct]) -> PoolStats:
    def total(name: str) -> int:
        return sum(getattr(one, name) for one in read)

    return PoolStats(
        in_use_bytes=total("live_bytes"),
        held_bytes=total("reserved_bytes"),
        peak_in_use_bytes=total("peak_live_bytes"),
        peak_held_bytes=total("peak_reserved_bytes"),
        largest_free_bytes=max((one.largest_free_bytes for one in read), default=0),
        allocations=total("n_allocations"),
        releases=total("n_frees"),
        hits=total("n_hits"),
        misses=total("n_misses"),
        failures=total("n_failures"),
        pages_moved=total("n_pages_moved"),
        pages_returned=total("n_pages_returned"),
    )


def torch_names(one: library.PoolStatsStruct) -> dict[str, int]:
    """A pool's counts under the names of torch.cuda.memory_stats(), as far as they mean the same here."""
    held_free = one.free_bytes + one.front_bytes
    return {
        "allocated_bytes.all.current": one.live_bytes,
        "allocated_bytes.all.peak": one.peak_live_bytes,
        "active_bytes.all.current": one.live_bytes + one.pending_bytes,
        "reserved_bytes.all.current": one.reserved_bytes,
        "reserved_bytes.all.peak": one.peak_reserved_bytes,
        "inactive_split_bytes.all.current": held_free,
        "allocation.all.allocated": one.n_allocations,
        "allocation.all.freed": one.n_frees,
        "allocation.all.current": one.n_allocations - one.n_frees,
        "num_ooms": one.n_failures,
        "num_device_alloc": one.n_pages_made,
        "num_device_free": one.n_pages_returned,
    }


class _Place:
    """A pool of the library over one kind of memory."""

    def __init__(self, device: int | None, max_bytes: int) -> None:
        self.pool = library.make_pool(device, max_bytes)

    def read(self) -> library.PoolStatsStruct:
        return library.pool_stats(self.pool)


class _DeviceBytes:
    """Memory of a device as PyTorch takes it in without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


class Pool:
    """Buffers of bytes from a pool that keeps its pages: see `memtally.pool()`."""

    def __init__(self, device: int | str = 0, max_bytes: int | str = 2 << 30) -> None:
        if not (device == "cpu" or (isinstance(device, int) and device >= 0)):
            raise error_of("MT_EARG", f"{device!r} is no device of a pool; there are 0, 1 and so on, and 'cpu'")
        self.device = device
        self.max_bytes = library.size(max_bytes)
        if self.max_bytes <= 0:
            raise error_of("MT_EARG", "a pool holds at least one byte; give max_bytes as 2 << 30 or '2GiB'")
        self._lock = threading.Lock()
        self._places: dict[int | None, _Place] = {}
        self._given: dict[int, _Place] = {}
        self._pid = os.getpid()
        _made.add(self)

    def _place(self, device: int | None) -> _Place:
        if self._pid != os.getpid():
            raise error_of("MT_EUNSUPPORTED", "a pool is its process's own; make another one after fork()")
        with self._lock:
            if device not in self._places:
                self._places[device] = _Place(device, self.max_bytes)
            return self._places[device]

    def _take(self, device: int | None, size: int, stream: int, hints: int) -> int:
        place = self._place(device)
        address = library.pool_allocate(place.pool, size, stream, hints)
        self._given[address] = place
        return address

    def allocate(self, bytes: int | str, backend: str = "torch", *, long_lived: bool = False) -> Any:
        """A buffer of so many bytes: a tensor ("torch"), an array ("cupy") or a memoryview ("host"). Its bytes are what
        was there before. It is yours until `release()`. One that is to stay for long lies apart from the others."""
        size, hints = library.size(bytes), _LONG_LIVED if long_lived else 0
        if backend not in BACKENDS:
            raise error_of("MT_EARG", f"no backend {backend!r}; there are {', '.join(BACKENDS)}")
        if size <= 0:
            raise error_of("MT_EARG", f"a buffer has at least one byte, not {size}")
        if backend == "host" or (backend == "torch" and self.device == "cpu"):
            address = self._take(None, size, 0, hints)
            view = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
            if backend == "host":
                return view
            torch = import_module("torch")
            return torch.frombuffer(view, dtype=torch.uint8)
        if not isinstance(self.device, int):
            raise error_of("MT_EARG", f"{backend} takes its buffers from a device; this pool is of 'cpu'")
        return self._on_device(self.device, size, backend, hints)

    def _on_device(self, device: int, size: int, backend: str, hints: int) -> Any:
        if backend == "torch":
            torch = import_module("torch")
            stream = torch.cuda.current_stream(device).cuda_stream or _LEGACY_STREAM
            held = _DeviceBytes(self._take(device, size, stream, hints), size)
            return torch.as_tensor(held, device=f"cuda:{device}")
        cupy = import_module("cupy")
        stream = cupy.cuda.get_current_stream().ptr or _LEGACY_STREAM
        address = self._take(device, size, stream, hints)
        memory = cupy.cuda.UnownedMemory(address, size, self, device)
        return cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))

    @staticmethod
    def _address_of(buffer: Any) -> int:
        if isinstance(buffer, memoryview):
            return ctypes.addressof(ctypes.c_ubyte.from_buffer(buffer)) if buffer.nbytes else 0
        if hasattr(buffer, "data_ptr"):
            return int(buffer.data_ptr())
        interface = getattr(buffer, "__cuda_array_interface__", None)
        return int(interface["data"][0]) if interface else 0

    def release(self, buffer: Any) -> None:
        """Gives a buffer back, in the order of the stream that it was allocated on. Nothing may use it any more."""
        place = self._given.pop(self._address_of(buffer), None)
        if place is None:
            raise error_of("MT_ENOTFOUND", "this buffer is none of the pool's, or was released before")
        library.pool_free(place.pool, self._address_of(buffer))

    def stats(self) -> PoolStats:
        return _stats_of([place.read() for place in self._places.values()])

    def memory_stats(self) -> dict[str, int]:
        """The counts of the device's buffers (of the host's, where the pool is of 'cpu') under PyTorch's names."""
        place = self._places.get(self.device if isinstance(self.device, int) else None)
        return torch_names(place.read() if place else library.PoolStatsStruct())

    def evict(self) -> int:
        """Gives back what was free for five minutes; the bytes."""
        return sum(library.pool_tick(place.pool) for place in self._places.values())

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Gives free memory back until no more than so much is held of each kind; the bytes."""
        keep = library.size(keep_bytes)
        return sum(library.pool_trim(place.pool, keep) for place in self._places.values())

    def place_on(self, device: int | None) -> Any:
        """The library's pool of a device, None of the host; None where the pool has taken nothing there, or is a parent's."""
        place = self._places.get(device) if self._pid == os.getpid() else None
        return place.pool if place else None

    def sleep(self, keep: str = "all") -> int:
        """Gives all memory back; the bytes. Buffers stay at their addresses, and nothing may use them until `wake()`, which puts
        back what was kept on the host: "nothing", what "long-lived" buffers have, or "all"."""
        if keep not in KEEPS:
            raise error_of("MT_EARG", f"a pool keeps {', '.join(KEEPS)} while it sleeps, not {keep!r}")
        places = list(self._places.values())
        asleep: list[_Place] = []
        released = 0
        try:
            for place in places:
                released += library.pool_sleep(place.pool, KEEPS.index(keep))
                asleep.append(place)
        except Error:
            for place in asleep:
                library.pool_wake(place.pool)
            raise
        return released

    def wake(self) -> None:
        """Takes memory again, at the same addresses. Where there is none, the pool sleeps on with all that it keeps."""
        for place in self._places.values():
            library.pool_wake(place.pool)

    def close(self) -> None:
        """Gives everything back, buffers that were not released too."""
        self._given.clear()
        while self._places and self._pid == os.getpid():
            library.destroy_pool(self._places.popitem()[1].pool)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_made: weakref.WeakSet[Pool] = weakref.WeakSet()


def held(device: int | None) -> tuple[int, int]:
    """What buffers of all pools have on a device, or with None on the host, and what the pools hold for it."""
    pools = [one for one in (made.place_on(device) for made in list(_made)) if one is not None]
    read = [library.pool_stats(one) for one in pools]
    return sum(one.live_bytes for one in read), sum(one.reserved_bytes for one in read)


def give_back(device: int | None) -> None:
    """What all pools hold there and no buffer has."""
    for made in list(_made):
        place = made.place_on(device)
        if place is not None:
            library.pool_trim(place, 0)


def pool(device: int | str = 0, max_bytes: int | str = 2 << 30) -> Pool:
    """A pool of buffers on a device (or "cpu") and on the host, each held to `max_bytes`.

    buffers = memtally.pool(max_bytes="4GiB")
    tensor = buffers.allocate(64 << 20)
    buffers.release(tensor)
    """
    return Pool(device, max_bytes)


class TorchPool:
    """The pool that is PyTorch's allocator: see `memtally.use_pool_in_torch()`."""

    def __init__(self, loaded: ctypes.CDLL, allocator: Any) -> None:
        self._loaded = loaded
        self._allocator = allocator  # PyTorch keeps no reference
        loaded.memtally_pool_of_device.restype = ctypes.c_void_p
        loaded.memtally_pool_of_device.argtypes = (ctypes.c_int,)
        loaded.memtally_pool_problem.restype = ctypes.c_char_p

    def _read(self, device: int) -> library.PoolStatsStruct:
        pool = self._loaded.memtally_pool_of_device(device)
        if not pool:
            problem: bytes = self._loaded.memtally_pool_problem(device)
            raise error_of("MT_EUNSUPPORTED", problem.decode(errors="replace"))
        read = library.PoolStatsStruct()
        self._loaded.mt_pool_stats_read(ctypes.c_void_p(pool), ctypes.byref(read))
        return read

    def stats(self, device: int = 0) -> PoolStats:
        return _stats_of([self._read(device)])

    def sleep(self, keep: str = "all") -> int:
        """Gives the memory of all devices back; the bytes. Tensors stay at their addresses, and nothing may use them until
        `wake()`, which puts back what was kept on the host: "nothing" or "all"."""
        if keep not in ("nothing", "all"):
            raise error_of("MT_EARG", f"the pools keep nothing or all while they sleep, not {keep!r}")
        self._loaded.memtally_pool_sleep.restype = ctypes.c_int64
        released: int = self._loaded.memtally_pool_sleep(int(keep == "all"))
        if released < 0:
            raise error_of(library.error_name(released), "a pool cannot sleep: it does already, or work on it cannot be waited for")
        return released

    def wake(self) -> None:
        """Takes memory again, at the same addresses."""
        code: int = self._loaded.memtally_pool_wake()
        if code < 0:
            raise error_of(library.error_name(code), "a device has no memory to wake up with: free some and wake() again")

    def memory_stats(self, device: int = 0) -> dict[str, int]:
        """Under the names of torch.cuda.memory_stats(), which PyTorch itself then does not answer."""
        return torch_names(self._read(device))


def use_pool_in_torch() -> TorchPool:
    """Puts a pool in the place of PyTorch's allocator on CUDA devices, before anything else of CUDA is used."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise error_of("MT_EARG", "import torch before its allocator is replaced")
    if torch.cuda.is_initialized():
        raise error_of("MT_EBUSY", "CUDA is in use already; replace PyTorch's allocator before the first tensor on a device")
    path = places.plugin()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "memtally_pool_malloc", "memtally_pool_free")
    loaded = ctypes.CDLL(path)
    setters = {
        "set_record_stream_fn": loaded.memtally_pool_record_stream,
        "set_reset_fn": loaded.memtally_pool_empty_cache,
        "set_memory_fraction_fn": loaded.memtally_pool_set_fraction,
    }
    for name, function in setters.items():
        getattr(allocator.allocator(), name)(ctypes.cast(function, ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    return TorchPool(loaded, allocator)
