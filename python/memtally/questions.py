# SPDX-License-Identifier: MIT
"""What the command answers, as functions. Each takes the command's own options as keywords."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Sequence, Union

from . import command
from .documents import Comparison, Estimate, Tally, estimate_of

Model = Union[str, "os.PathLike[str]"]
Operand = Union[Model, Tally]


def estimate(model: Model | Sequence[Model], **settings: Any) -> Estimate:
    """What a model will take, before it is loaded.

    Settings are the options of `memtally estimate`: `context=8192`, `device="24GiB"` or `device=["24GiB", "16GiB"]`,
    `engine="vllm@0.11.0"`, `mmap=False`. With `best_quant=True` or `matrix=True` there may be several models, and the answer
    is an Estimates. Raises memtally.Error with the command's sentence."""
    models = [model] if isinstance(model, (str, os.PathLike)) else list(model)
    return _estimate("estimate", ["--json"], settings, ["--", *(os.fspath(one) for one in models)])


def rehearse(model_or_command: Model | Sequence[str] | None = None, **settings: Any) -> Estimate:
    """What an engine or any program takes, run on devices that are not there.

    A text is a model, as `memtally rehearse MODEL` takes it; a list is a program with its arguments; neither is needed with
    `placed=FILE`. Settings are the options of `memtally rehearse`: `device="H100-80GB"`. With `sweep=` the answer is an
    Estimates."""
    operands: list[str] = []
    if isinstance(model_or_command, (str, os.PathLike)):
        operands = [os.fspath(model_or_command)]
    elif model_or_command is not None:
        operands = ["--", *model_or_command]
    return _estimate("rehearse", ["--json", "--quiet"], settings, operands)


def _estimate(name: str, own: list[str], settings: dict[str, Any], operands: list[str]) -> Estimate:
    return estimate_of(command.ask([name, *own, *command.options_of(name, settings), *operands]))


def compare(a: Operand, b: Operand, **settings: Any) -> Comparison:
    """The difference of two recordings, estimates or tallies: by path, or as the objects that these functions return."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [_path_of(operand, os.path.join(folder, f"{name}.json")) for name, operand in (("a", a), ("b", b))]
        return Comparison(command.ask(["compare", "--json", *command.options_of("compare", settings), "--", *paths]))


def _path_of(operand: Operand, path: str) -> str:
    if not isinstance(operand, Tally):
        return os.fspath(operand)
    operand.save(path)
    return path
