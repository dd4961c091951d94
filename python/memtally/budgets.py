# SPDX-License-Identifier: MIT
"""Memory that is promised to tests, out of what this machine has: by a file that all processes of the user share, among
them the workers of pytest-xdist, `memtally exec` and `memtally test`. The library decides; see <memtally/budget.h>."""

from __future__ import annotations

import os
import socket
import time
from types import TracebackType
from typing import Any, Callable, Mapping, TypeVar, Union

from . import library
from .errors import Busy, Error, error_of
from .measuring import Measure, Record

T = TypeVar("T")
Size = Union[int, str]
Sizes = Union[Size, Mapping[str, Size], None]
_LOOK_SECONDS = 0.05


def default_file() -> str:
    """The one that the command uses too. A home may be shared by machines."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = state if state.startswith("/") else os.path.expanduser("~/.local/state")
    return os.path.join(folder, "memtally", f"budget-{socket.gethostname()[:63]}")


def _is_place(name: str) -> bool:
    return name == "host" or (name.startswith("gpu") and (name[3:] == "" or name[3:].isdecimal()))


def _sizes(given: Mapping[str, Size]) -> dict[str, int]:
    for name in given:
        if not _is_place(name):
            raise error_of("MT_EARG", f"no place {name!r}; there are host, gpu (any one), gpu0, gpu1 and so on")
    return {name: library.size(size) for name, size in given.items()}


def _promised(holders: list[library.BudgetHolderStruct], place: str) -> tuple[int, int]:
    """What holders were promised, and what they have taken of that."""
    needs = [need for one in holders if one.holds for need in one.needs[: one.n_needs]]
    here = [need for need in needs if need.place.decode() == place]
    return sum(need.bytes for need in here), sum(min(need.bytes, need.used_bytes) for need in here)


class Reservation:
    """Memory that is promised to this process. `bytes` says how much by place; of "gpu" it has the one that was found.
    Ends with release(), with its `with`, with the budget or with the process."""

    def __init__(self, file: str, number: int, sizes: dict[str, int]) -> None:
        self.bytes = sizes
        self._file = file
        self._number = number
        self._pid = os.getpid()
        self._is_held = True

    def took(self, **sizes: Size) -> None:
        """Says how much of a place has been taken by now: `took(host="1GiB")`. Else it counts as promised and as gone."""
        for place, size in _sizes(sizes).items():
            library.renew_budget(self._file, self._number, place, size)

    def release(self) -> None:
        # A process that was forked meanwhile has its parent's object, not its promise.
        if self._is_held and self._pid == os.getpid():
            self._is_held = False
            library.release_budget(self._file, self._number)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Budget:
    """What this machine has, less `min_free` that stays free. `reserved` is promised to this process for as long as the
    budget lasts. A size is that of the host and of each device, a mapping names places: {"host": "4GiB", "gpu0": "1GiB"}.
    `isolate=False` lets run_isolated() call in this process, where a debugger sees it."""

    def __init__(self, min_free: Sizes = None, reserved: Sizes = None, isolate: bool = True, file: str | None = None) -> None:
        self.file = file if file is not None else default_file()
        self.isolate = isolate
        self._reservations: list[Reservation] = []
        os.makedirs(os.path.dirname(os.path.abspath(self.file)), mode=0o700, exist_ok=True)
        names = self._names(self._look({}))
        self.min_free = self._by_place(min_free, names)
        wanted = {place: size for place, size in self._by_place(reserved, names).items() if size}
        if wanted:
            self._reserve(wanted, 0)

    @staticmethod
    def _names(found: library.JobMachineStruct) -> list[str]:
        return [found.places[i].name.decode() for i in range(found.n)]

    @staticmethod
    def _by_place(given: Sizes, names: list[str]) -> dict[str, int]:
        if given is None:
            return {}
        if isinstance(given, (int, str)):
            return dict.fromkeys(names, library.size(given))
        sizes = _sizes(given)
        for name in sizes:
            if name not in names:
                raise error_of("MT_ENOTFOUND", f"there is no place {name} here; there are {', '.join(names)}")
        return sizes

    @staticmethod
    def _look(min_free: dict[str, int]) -> library.JobMachineStruct:
        found = library.machine(os.environ.get("CUDA_VISIBLE_DEVICES"))
        for place in found.places[: found.n]:
            place.min_free_bytes = min_free.get(place.name.decode(), 0)
        return found

    def free(self) -> dict[str, int]:
        """What each place has free now, whoever took the rest; what is promised and not taken yet is still in it."""
        found = self._look({})
        return {place.name.decode(): int(place.free_bytes) for place in found.places[: found.n]}

    def reserve(self, wait: float = 0.0, **sizes: Size) -> Reservation:
        """Promises this process memory: `reserve(host="2GiB", gpu="4GiB")`, where gpu is any one device and gpu0 the first.
        Waits up to `wait` seconds for room, behind those who asked before. Raises memtally.Error of kind Busy where there
        is none by then, and LimitExceeded where there never will be."""
        return self._reserve(_sizes(sizes), wait)

    def _reserve(self, sizes: dict[str, int], wait: float) -> Reservation:
        needs = {"gpu*" if place == "gpu" else place: size for place, size in sizes.items()}
        number = library.ask_budget(self.file, needs)
        try:
            self._take(number, time.monotonic() + wait)
            held = next(one for one in library.budget_holders(self.file) if one.id == number)
        except BaseException:
            library.release_budget(self.file, number)
            raise
        found = {need.place.decode(): int(need.bytes) for need in held.needs[: held.n_needs]}
        self._reservations.append(Reservation(self.file, number, found))
        return self._reservations[-1]

    def _take(self, number: int, until: float) -> None:
        while True:
            try:
                return library.take_budget(self.file, number, self._look(self.min_free))
            except Busy:
                if time.monotonic() >= until:
                    raise Busy(self._shortage(number)) from None
            time.sleep(_LOOK_SECONDS)

    def _shortage(self, number: int) -> str:
        """For each place that is asked for: what it has, what was promised of that, what must stay."""
        text, said = library.text_of_size, []
        holders, found = library.budget_holders(self.file), self._look({})
        asked = next((one for one in holders if one.id == number), None)
        for need in asked.needs[: asked.n_needs] if asked else ():
            name = need.place.decode()
            for place in found.places[: found.n]:
                here = place.name.decode()
                if here != name and not (name == "gpu*" and here.startswith("gpu")):
                    continue
                promised, taken = _promised(holders, here)
                stays = f", {text(self.min_free[here])} stay free" if self.min_free.get(here) else ""
                said.append(
                    f"{here} has {text(place.free_bytes)} of {text(place.capacity_bytes)} free, {text(promised)} are promised "
                    f"and {text(taken)} of them taken{stays}, and {text(need.bytes)} are asked for"
                )
        return "there is no room now: " + "; ".join(said)

    def release(self) -> None:
        """Ends all reservations of this budget."""
        while self._reservations:
            try:
                self._reservations.pop().release()
            except Error:  # its slot was damaged and is free already
                pass

    def run_isolated(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> tuple[T, Record]:
        """Calls fn(*args, **kwargs) in a process of its own and returns its result and a record of what it took. Its
        exception is raised here, with its traceback there as the cause and the record as `memtally_record`. A process
        that dies is an Error of kind ChildFailed."""
        if not self.isolate:
            return Measure()(fn, *args, **kwargs)
        from .separate import run

        return run(fn, args, kwargs)
