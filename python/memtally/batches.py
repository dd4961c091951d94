# SPDX-License-Identifier: MIT
"""The largest batch that runs, with few tries: what a try took says which to try next."""

from __future__ import annotations

import math
from typing import Any, Callable

from . import devices, library
from .documents import Estimate
from .errors import error_of
from .loading import forget
from .measuring import Measure, Record
from .resetting import reset_device, reset_host


def fit_batch(
    fn: Callable[[int], Any], upper: int, start: int | Estimate = 1, on_try: Callable[[int, Record | None], Any] | None = None
) -> int:
    """The largest batch from 1 to `upper` that fn(batch) runs with.

    Memory is expected to grow with the batch along a line: two tries say which batch should just fit, and the next tries
    close in on it from both sides. After a try that runs out of memory everything is given back before the next one. On
    the host, where the kernel kills and raises nothing, a batch that would not fit is not tried. Other exceptions than
    running out of memory go through, as does that of a batch of 1. `start` is tried first: a batch, or an estimate
    that was asked for one (memtally.estimate(…, max_sequences=True)). `on_try` is called with each batch and its record, or None where it did not run."""
    if isinstance(start, Estimate):
        start = max(1, min(upper, int((start.json.get("answer") or {}).get("value") or 1)))
    if upper < 1 or not 1 <= start <= upper:
        raise error_of("MT_EARG", f"upper is {upper} and start {start}: 1 <= start <= upper is asked")
    search = _Search(fn, on_try, upper)
    batch: int | None = start
    while batch is not None:
        search.attempt(batch)
        batch = search.next()
    if search.most == 0 and search.refusal is not None:
        raise search.refusal
    return search.most


class _Search:
    """`most` runs and `least` does not; between them nothing is known."""

    def __init__(self, fn: Callable[[int], Any], on_try: Callable[[int, Record | None], Any] | None, upper: int) -> None:
        self.fn = fn
        self.on_try = on_try
        self.most = 0
        self.least = upper + 1
        self.seen: dict[int, tuple[int, int]] = {}  # batch: peak and capacity
        self.refusal: BaseException | None = None
        self.step = 1  # beyond what the line says, while that turns out to be too little
        self.was_wrong = False  # the line said that a batch fits, and it did not

    def attempt(self, batch: int) -> None:
        record: Record | None = None
        try:
            record = Measure()(self.fn, batch)[1]
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            forget(error)
            self.refusal = error
        if record is None:
            self.least = batch
        else:
            self.most = batch
            self.seen[batch] = peak, capacity = _peak_and_capacity(record)
            if record.device == "host":  # without a batch there is what was there before
                self.seen.setdefault(0, (peak - record.growth_bytes, capacity))
        _clean()
        if self.on_try:
            self.on_try(batch, record)

    def next(self) -> int | None:
        """The batch to try, or None where it is found."""
        if self.most + 1 >= self.least:
            return None
        if self.most == 0:
            return max(1, self.least // 2)
        expected = self._expected()
        if expected is None:
            return min(self.least - 1, 2 * self.most)
        if expected <= self.most:
            if 0 in self.seen:  # on the host: one more would be too much, and the kernel would kill for it
                return None
            self.step *= 2
            return min(self.most + self.step // 2, self.least - 1)
        if expected < self.least:
            return expected
        if self.refusal is None or not self.was_wrong:
            self.was_wrong = self.refusal is not None
            return self.least - 1
        if self.least > 2 * self.most:
            return max(self.most + 1, math.isqrt(self.most * self.least))
        return (self.most + self.least) // 2

    def _expected(self) -> int | None:
        """The batch that should just fit, by the line through the two largest that ran."""
        if len(self.seen) < 2:
            return None
        (small, (low, _)), (large, (high, capacity)) = sorted(self.seen.items())[-2:]
        if high <= low:
            return self.least - 1
        return large + int((capacity - high) * (large - small) / (high - low))


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    # PyTorch's own is a RuntimeError, as is that of cuBLAS and of allocators that are plugged in.
    return isinstance(error, RuntimeError) and ("out of memory" in str(error) or "CUBLAS_STATUS_ALLOC_FAILED" in str(error))


def _peak_and_capacity(record: Record) -> tuple[int, int]:
    """The peak of a try, and the peak at which it would have had no room."""
    if record.device == "host":
        now = record.host.after_bytes or record.host.peak_bytes
        return record.peak_memory_bytes, now + (library.host_left() or 0)
    index = int(record.device.removeprefix("cuda:"))
    said = devices.stats(index)
    device = next(one for one in record.devices if one.index == index)
    peak = device.allocated_peak_bytes or record.peak_memory_bytes
    free = int(devices.torch().cuda.mem_get_info(index)[0])
    return peak, free + (said.reserved if said else 0)


def _clean() -> None:
    if devices.is_in_use():
        reset_device(largest=0)
    else:
        reset_host(largest=0)
