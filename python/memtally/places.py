# SPDX-License-Identifier: MIT
"""Where the command and the library lie that belong to this package, and no others: layouts are those of one version."""

from __future__ import annotations

import os

from .errors import NotFound

_HERE = os.path.dirname(os.path.realpath(__file__))
# As the wheel has them, as `make install` lays them out, as they are built.
_PREFIXES = (os.path.join(_HERE, "prefix"), os.path.normpath(os.path.join(_HERE, *[os.pardir] * 4)))
_BUILD = os.path.normpath(os.path.join(_HERE, os.pardir, os.pardir))


def _first(kind: str, candidates: list[str]) -> str:
    for path in candidates:
        if os.path.exists(path):
            return path
    raise NotFound(f"{kind} that belongs to {_HERE} is not there; install the package again (pip install memtally)")


def command() -> str:
    """The path of the command."""
    installed = [os.path.join(prefix, "bin", "memtally") for prefix in _PREFIXES]
    return _first("the command", [installed[0], os.path.join(_BUILD, "src", "cli", "memtally"), *installed[1:]])


def library() -> str:
    """The path of libmemtally.so."""
    folders = ["lib", os.path.join("lib", "x86_64-linux-gnu"), "lib64"]
    installed = [os.path.join(prefix, folder, "libmemtally.so.0") for prefix in _PREFIXES for folder in folders]
    return _first("the library", [installed[0], os.path.join(_BUILD, "libmemtally.so.0"), *installed[1:]])


def plugin() -> str:
    """The path of libmemtally-pool.so."""
    folders = ["lib", os.path.join("lib", "x86_64-linux-gnu"), "lib64"]
    installed = [os.path.join(prefix, folder, "memtally", "libmemtally-pool.so") for prefix in _PREFIXES for folder in folders]
    built = os.path.join(_BUILD, "src", "pool", "plugin", "libmemtally-pool.so")
    return _first("the pool's library", [installed[0], built, *installed[1:]])
