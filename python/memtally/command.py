# SPDX-License-Identifier: MIT
"""The command: starting it, and having it answer in JSON."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any, Mapping, Sequence

from . import places
from .errors import error_of

# What memtally put into this process's environment is none of the command's that it starts.
_OWN = ("MEMTALLY_REHEARSAL", "MEMTALLY_WATCH", "MEMTALLY_RECORD_")
# Options that are about how an answer is written.
_NO_SETTINGS = frozenset(("format", "help", "json", "output", "quiet"))


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


@functools.cache
def options(name: str) -> dict[str, dict[str, Any]]:
    """What each option of a command takes, as the command itself says."""
    return {option["name"]: option for option in ask(["help", "--json", name])["options"]}


def _switch(known: Mapping[str, dict[str, Any]], option: str, is_on: bool) -> list[str]:
    """What is on by itself has only the option that turns it off, and the other way round."""
    if "on" in (known.get(option, {}).get("choices") or ()):
        return [f"--{option}={'on' if is_on else 'off'}"]
    wanted, other = (option, "no-" + option) if is_on else ("no-" + option, option)
    return [] if other in known and wanted not in known else ["--" + wanted]


def options_of(name: str, settings: Mapping[str, Any]) -> list[str]:
    """Keywords as the options of a command: context=8192 is --context=8192, mmap=False is --no-mmap, None is left out. A
    list is the option as often as it has items where the option may be given several times, else one with commas."""
    known = options(name)
    words: list[str] = []
    for setting, value in settings.items():
        option = setting.replace("_", "-")
        if option in _NO_SETTINGS:
            raise error_of("MT_EARG", f"{name}: {setting} is no setting: the answer is an object, and its save() writes it")
        if isinstance(value, bool):
            words += _switch(known, option, value)
        elif isinstance(value, (list, tuple)):
            items = [str(item) for item in value]
            is_repeated = known.get(option, {}).get("takes") == "texts"
            words += [f"--{option}={item}" for item in (items if is_repeated else [",".join(items)])]
        elif value is not None:
            words.append(f"--{option}={value}")
    return words


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
