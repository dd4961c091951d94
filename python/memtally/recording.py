# SPDX-License-Identifier: MIT
"""Recordings: making one of a program, and reading what it says."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import Any, Sequence

from . import command, places
from .documents import Tally, tally_of
from .errors import error_of


@dataclass(frozen=True)
class Recording:
    """A recording by its folder. `status` is what the program ended with, None where that is not known here."""

    folder: str
    status: int | None = None

    def __fspath__(self) -> str:
        return self.folder

    def tally(self, at: str = "peak") -> Tally:
        """At a moment, as `memtally report --at` takes it: "peak", "heap-peak", "kv_cache-peak", "steady", "exit", "3.5s"."""
        return tally_of(command.ask(["report", "--json", "--at", at, "--", self.folder]))


def record(program: Sequence[str] | None = None, output: str | None = None, **settings: Any) -> Recording:
    """Runs a program under the recorder and returns its recording. What it prints goes where this process's output goes.
    Settings are the options of `memtally run`: `depth="full"`, `on="H100-80GB"`, `layers=True`.

    Without a program: the recording that this process is part of, for it was started by `memtally run`."""
    if program is None:
        folder = os.environ.get("MEMTALLY_RECORD_DIR")
        if not folder:
            raise error_of("MT_ENOTFOUND", "this process is not recorded; start it with 'memtally run -- python …'")
        return Recording(folder)
    folder = os.path.abspath(output) if output is not None else _new_folder(program[0])
    words = ["run", "--quiet", "--output", folder, *command.options_of("run", settings), "--", *program]
    status = subprocess.run([places.command(), *words], env=command.environment(), check=False).returncode
    if not os.path.exists(folder):
        raise error_of("MT_ECHILD", f"{program[0]} could not be recorded; the command has said why on standard error")
    return Recording(folder, status)


def _new_folder(program: str) -> str:
    """A name that is free, as the command makes them."""
    from datetime import datetime

    stem = f"memtally-{os.path.basename(program)}-{datetime.now():%Y%m%d-%H%M%S}"
    names = [stem, *(f"{stem}-{number}" for number in range(2, 1000))]
    return os.path.abspath(next(name for name in names if not os.path.exists(name)))
