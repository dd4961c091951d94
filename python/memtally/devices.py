# SPDX-License-Identifier: MIT
"""Devices as PyTorch's allocator knows them, where the program has imported it; it is never imported here."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any

from .errors import error_of


def torch() -> Any:
    """PyTorch where the program has imported it whole, else None."""
    module = sys.modules.get("torch")
    spec = getattr(module, "__spec__", None)
    if module is None or getattr(spec, "_initializing", False) or not hasattr(module, "cuda"):
        return None
    return module


def is_in_use() -> bool:
    """Whether this process has initialised CUDA by PyTorch. Asking does not initialise it."""
    module = torch()
    try:
        # After a fork PyTorch still says of the child that it is initialised, and refuses every call.
        return bool(module and module.cuda.is_initialized() and not module.cuda._is_in_bad_fork())
    except (AttributeError, RuntimeError):
        return False


def count() -> int:
    return int(torch().cuda.device_count()) if is_in_use() else 0


def current() -> int:
    return int(torch().cuda.current_device())


def synchronize(index: int) -> None:
    try:
        torch().cuda.synchronize(index)
    except RuntimeError:  # an error of the program's own kernels: it hears of it where it asks itself
        pass


def driver_index(index: int) -> int | None:
    """The number of a device as the driver's own library counts, which the environment does not reorder."""
    try:
        return int(torch().cuda._get_nvml_device_index(index))
    except Exception:  # a private function, of varying kinds of failure
        return None


def uuid_of(index: int) -> str | None:
    try:
        text = str(torch().cuda.get_device_properties(index).uuid)
    except (AttributeError, RuntimeError):  # PyTorch before 2.4 does not say
        return None
    return text if text.startswith("GPU-") else "GPU-" + text


def name_of(index: int) -> str:
    return str(torch().cuda.get_device_name(index))


@dataclass(frozen=True)
class Stats:
    """What the allocator says of a device; bytes, but for the number of allocations since the process began."""

    allocated: int
    allocated_peak: int
    reserved: int
    reserved_peak: int
    n_allocations: int


def stats(index: int) -> Stats | None:
    """None where the allocator does not say: one that the program has plugged in."""
    try:
        said = torch().cuda.memory_stats(index)
    except (RuntimeError, AttributeError):
        return None
    return Stats(
        said.get("allocated_bytes.all.current", 0),
        said.get("allocated_bytes.all.peak", 0),
        said.get("reserved_bytes.all.current", 0),
        said.get("reserved_bytes.all.peak", 0),
        said.get("allocation.all.allocated", 0),
    )


def index_of(device: Any) -> int | None:
    """The index that a device is named by: a number, "cuda", "cuda:1", a UUID, a torch.device; None for the host."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    kind = getattr(device, "type", None)
    if kind is not None:  # a torch.device
        device = kind if device.index is None else f"{kind}:{device.index}"
    text = str(device)
    if text in ("host", "cpu"):
        return None
    if text == "cuda":
        return current() if is_in_use() else 0
    if text.startswith("GPU-"):
        return _index_of_uuid(text)
    number = text.removeprefix("cuda:")
    if not number.isdecimal():
        raise error_of("MT_EARG", f"no device {text!r}; name it as 0, 'cuda:0', a UUID (GPU-…), 'host' or 'auto'")
    return int(number)


def _index_of_uuid(uuid: str) -> int:
    module = torch()
    found = [index for index in range(module.cuda.device_count() if module else 0) if uuid_of(index) == uuid]
    if not found:
        raise error_of("MT_ENOTFOUND", f"PyTorch has no device {uuid}; is it imported, and is the device visible to it?")
    return found[0]


class Peaks:
    """The peaks of one device from now on.

    The allocator keeps one peak for all who ask. So whoever resets it hands it first to all that are under way, and
    each has its own, nested or not."""

    _lock = threading.RLock()
    _under_way: list[Peaks] = []

    def __init__(self, index: int, since: Start | None = None) -> None:
        self.index = index
        self.reserved_peak, self.allocated_peak = since.seen.get(index, (0, 0)) if since else (0, 0)
        self.before = Stats(0, 0, 0, 0, 0)
        with Peaks._lock:
            said = stats(index)
            self.is_told = said is not None
            if said is None:
                return
            if since is None:
                self.before = said
                reset(index)
            Peaks._under_way.append(self)

    def _see(self, said: Stats) -> None:
        self.reserved_peak = max(self.reserved_peak, said.reserved_peak)
        self.allocated_peak = max(self.allocated_peak, said.allocated_peak)

    def end(self) -> Stats | None:
        """What the allocator says now; the peaks are then known."""
        with Peaks._lock:
            if self in Peaks._under_way:
                Peaks._under_way.remove(self)
            said = stats(self.index) if self.is_told else None
            if said:
                self._see(said)
            return said


class Start:
    """A moment before CUDA was initialised: the peaks of any device since then are those since it was."""

    _open: list[Start] = []

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, int]] = {}  # of peaks that were reset meanwhile
        with Peaks._lock:
            Start._open.append(self)

    def _see(self, index: int, said: Stats) -> None:
        reserved, allocated = self.seen.get(index, (0, 0))
        self.seen[index] = (max(reserved, said.reserved_peak), max(allocated, said.allocated_peak))

    def end(self) -> list[Peaks]:
        """The peaks of each device; nothing resets them for this moment any more."""
        with Peaks._lock:
            Start._open.remove(self)
            return [Peaks(index, self) for index in range(count())]


def reset(index: int) -> None:
    """Sets the allocator's peaks of a device to what it has now; measurements under way keep theirs."""
    with Peaks._lock:
        said = stats(index)
        if said is None:
            return
        for peaks in Peaks._under_way:
            if peaks.index == index:
                peaks._see(said)
        for start in Start._open:
            start._see(index, said)
        torch().cuda.reset_peak_memory_stats(index)
