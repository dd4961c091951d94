# SPDX-License-Identifier: MIT
"""Which layers and experts of a model go to which device."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Union

from . import command, documents

Model = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Placement:
    """A placement, as `memtally place` has it: `json` has all that was said.

    `device_map` and `max_memory` are what from_pretrained() takes, of engine="transformers"; else they are None."""

    json: dict[str, Any] = field(repr=False)

    @property
    def device_map(self) -> dict[str, int | str] | None:
        given = self.json.get("device_map")
        return dict(given) if given is not None else None

    @property
    def max_memory(self) -> dict[int | str, int] | None:
        """With device_map="sequential" accelerate comes to the same stretches by these."""
        given = self.json.get("max_memory_bytes")
        return {int(key) if key.isdigit() else key: size for key, size in given.items()} if given is not None else None

    @property
    def flags(self) -> str:
        """The engine's flags, ready to paste."""
        return str(self.json["flags"])

    @property
    def environment(self) -> dict[str, str]:
        """What the engine must start in."""
        return dict(part.split("=", 1) for part in str(self.json["environment"]).split())

    @property
    def crossings_per_token(self) -> float:
        return float(self.json["crossings_per_token"])

    @property
    def is_best(self) -> bool:
        """No other way to give each device one stretch of layers is better by the objective."""
        return bool(self.json["is_best"])

    @property
    def further_context_tokens(self) -> int | None:
        return self.json["further_context_tokens"]  # type: ignore[no-any-return]

    @property
    def devices(self) -> list[dict[str, Any]]:
        return list(self.json["devices"])

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [("device", "layers", "at most", "of it")]
        for device in self.devices:
            share = f"{100 * device['used_ratio']:.1f} %"
            lines.append((device["device"], str(device["layers"]), documents.text_of(device["used_bytes"]), share))
        return lines

    def __str__(self) -> str:
        return documents.table(self._lines()) + "\n\n" + f"{self.json['environment']} {self.flags}".strip()

    def _repr_html_(self) -> str:
        return documents.html_table(self._lines(), self.flags)


def place(model: Model, **settings: Any) -> Placement:
    """Places a model on devices: `place("model.gguf", device=["16GiB", "12GiB"], context=8192)`.

    Settings are the options of `memtally place`. Raises memtally.Error where it does not fit; the sentence says how much
    is missing."""
    return Placement(command.ask(["place", "--json", *command.options_of("place", settings), "--", os.fspath(model)]))
