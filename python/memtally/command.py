# SPDX-License-Identifier: MIT
"""The command: starting it, and having it answer in JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Mapping, Sequence

from . import places
from .errors import error_of

# What memtally put into this process's environment is none of the command's that it starts.
_OWN = ("MEMTALLY_REHEARSAL", "MEMTALLY_WATCH", "MEMTALLY_RECORD_")


def main() -> None:
    """What `memtally` in the environment's bin folder is: the command itself takes this process's place."""
    path = places.command()
    os.execv(path, [path, *sys.argv[1:]])


def environment() -> dict[str, str]:
    """This process's environment without what a recording or a rehearsal of it added."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    preloaded = [path for path in kept.get("LD_PRELOAD", "").replace(" ", ":").split(":") if path]
    others = [path for path in preloaded if not os.path.basename(path).startswith("libmemtally-")]
    if len(others) < len(preloaded):
        del kept["LD_PRELOAD"]
        if others:
            kept["LD_PRELOAD"] = ":".join(others)
    return kept


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """Keywords as the command's options: context=8192 is --context 8192, mmap=False is --no-mmap, a list of devices is
    one option with commas, None is left out."""
    options: list[str] = []
    for name, value in settings.items():
        option = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            options.append(option)
        elif value is False:
            options.append("--no-" + option[2:])
        elif isinstance(value, (list, tuple)):
            options += [option, ",".join(str(item) for item in value)]
        else:
            options += [option, str(value)]
    return options


def ask(arguments: Sequence[str]) -> dict[str, Any]:
    """The document that the command answers with, or its complaint as an Error."""
    done = subprocess.run(
        [places.command(), *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        sentence = said[0] if said else f"the command ended with status {done.returncode} and said nothing"
        raise error_of("MT_ECHILD", sentence.removeprefix("memtally: "), tuple(said[1:])) from None
    if document.get("kind") == "error":
        error = document["error"]
        raise error_of(error["code"] or "MT_EARG", error["sentence"], tuple(error["details"]))
    return document
