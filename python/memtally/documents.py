# SPDX-License-Identifier: MIT
"""Answers as objects: they print as a table, a notebook shows them as one, and `json` has all that was said."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from typing import Any, Iterator

from . import library


@dataclass(frozen=True)
class Row:
    """One category at one place: what is resident of it in a measurement, what will be allocated in an estimate. A size that
    is not known is None."""

    category: str
    bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    provenance: str
    allocated_bytes: int | None = None


@dataclass(frozen=True)
class Place:
    """The host or a device. Of a measurement the rows and `unattributed_bytes` add up to `total_bytes`."""

    place: str
    total_bytes: int | None
    unattributed_bytes: int | None
    capacity_bytes: int | None
    rows: tuple[Row, ...]

    def row(self, category: str) -> Row | None:
        return next((row for row in self.rows if row.category == category), None)


def text_of(value: int | None) -> str:
    return "?" if value is None else library.text_of_size(value)


def table(lines: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column == 2 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def html_table(lines: list[tuple[str, ...]], caption: str) -> str:
    head, *body = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in lines]
    head = head.replace("td>", "th>")
    rows = "".join(f"<tr>{line}</tr>" for line in body)
    return f"<table><caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


@dataclass(frozen=True)
class Tally:
    """Bytes for each place and category at one moment."""

    json: dict[str, Any] = field(repr=False)
    places: tuple[Place, ...]

    @property
    def moment(self) -> str:
        return str(self.json.get("moment", ""))

    def place(self, name: str) -> Place | None:
        return next((place for place in self.places if place.place == name), None)

    def __iter__(self) -> Iterator[Place]:
        return iter(self.places)

    def _heading(self) -> str:
        return ""

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = [("place", "category", "size", "from")]
        for place in self.places:
            for row in place.rows:
                lines.append((place.place, row.category, text_of(row.bytes), row.provenance))
            if place.unattributed_bytes is not None:
                lines.append((place.place, "unattributed", text_of(place.unattributed_bytes), ""))
            lines.append((place.place, "total", text_of(place.total_bytes), ""))
        return lines

    def __str__(self) -> str:
        heading = self._heading()
        return (heading + "\n\n" if heading else "") + table(self._lines())

    def _repr_html_(self) -> str:
        return html_table(self._lines(), self._heading())

    def save(self, path: str) -> None:
        """Writes the JSON, as `memtally compare` reads it."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.json, file, indent=2)
            file.write("\n")


@dataclass(frozen=True)
class Estimate(Tally):
    """What a model or a program will take, and whether it fits."""

    @property
    def verdict(self) -> str | None:
        """FITS, TIGHT, SPILLS, PAGES, CANNOT; EXCEEDS of a rehearsal; None where no capacity was given."""
        return self.json.get("verdict")

    @property
    def reason(self) -> str | None:
        return self.json.get("reason")

    @property
    def flags(self) -> str | None:
        """The engine's flags, ready to paste."""
        return self.json.get("flags")

    @property
    def fits(self) -> bool:
        return self.verdict == "FITS"

    def _heading(self) -> str:
        return ": ".join(part for part in (self.verdict, self.reason) if part)


@dataclass(frozen=True)
class Estimates(Estimate):
    """Several estimates in one answer: of a matrix or a sweep its `points`; of several files theirs, and this one is itself
    that of the file that fits best."""

    @property
    def points(self) -> list[dict[str, Any]]:
        """As the command has them in JSON."""
        return list(self.json["estimates" if self.json["kind"] == "estimates" else "points"])

    def _lines(self) -> list[tuple[str, ...]]:
        return [("of", "place", "size", "verdict"), *map(_line_of_point, self.points)]


def _line_of_point(point: dict[str, Any]) -> tuple[str, ...]:
    """The line of a point, with the fullest of its devices."""
    places: list[dict[str, Any]] = point.get("places", [point])
    places = [place for place in places if place["place"] != "host"] or places
    fullest = max(places, key=lambda place: place["total_allocated_bytes"] or 0, default=None)
    if "model" in point:
        what = str(point["model"]["path"])
    elif "values" in point:
        what = ", ".join(f"{name} {value}" for name, value in point["values"].items())
    else:
        what = f"{point['type']}, context {point['context_tokens']}"
    where, size = (str(fullest["place"]), fullest["total_allocated_bytes"]) if fullest else ("", None)
    return what, where, text_of(size), str(point["verdict"])


@dataclass(frozen=True)
class Comparison:
    """The difference of two answers, component by component."""

    json: dict[str, Any] = field(repr=False)

    @property
    def components(self) -> list[dict[str, Any]]:
        return list(self.json["components"])

    def component(self, name: str) -> dict[str, Any] | None:
        return next((part for part in self.components if part["component"] == name), None)

    def _lines(self) -> list[tuple[str, ...]]:
        keys = ("a_bytes", "b_bytes", "difference_bytes")
        sizes = [tuple(text_of(part[key]) for key in keys) for part in self.components]
        lines = [
            (part["component"], a, b, difference, part["verdict"] or "")
            for part, (a, b, difference) in zip(self.components, sizes)
        ]
        return [("component", "A", "B", "difference", "B is"), *lines]

    def __str__(self) -> str:
        return table(self._lines())

    def _repr_html_(self) -> str:
        return html_table(self._lines(), "")


def _row(row: dict[str, Any], size: str) -> Row:
    return Row(row["category"], row[size], row.get("low_bytes"), row.get("high_bytes"), row["provenance"], row.get("allocated_bytes"))


def places_of(document: dict[str, Any]) -> tuple[Place, ...]:
    """The places of a document; what counts is what is resident in a measurement, what is allocated in an estimate."""
    is_estimate = document["kind"] in ("estimate", "rehearsal")
    size, total = ("allocated_bytes",) * 2 if is_estimate else ("resident_bytes",) * 2
    return tuple(
        Place(
            place["place"],
            place[f"total_{total}"],
            place.get("unattributed_bytes"),
            place["capacity_bytes"],
            tuple(_row(row, size) for row in place["rows"]),
        )
        for place in document["places"]
    )


def tally_of(document: dict[str, Any]) -> Tally:
    return Tally(document, places_of(document))


def estimate_of(document: dict[str, Any]) -> Estimate:
    if document["kind"] in ("estimate", "rehearsal"):
        return Estimate(document, places_of(document))
    path = (document.get("answer") or {}).get("path")
    best = next((one for one in document.get("estimates", ()) if path is not None and one["model"]["path"] == path), None)
    if best is None:
        return Estimates(document, ())
    return Estimates({**{name: best.get(name) for name in ("verdict", "reason", "flags")}, **document}, places_of(best))
