# SPDX-License-Identifier: MIT
"""What a tracker saw, as a picture: a line for the terminal, SVG, a page of its own, PNG by matplotlib."""

from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING, Callable, Sequence

from .documents import text_of
from .errors import error_of

if TYPE_CHECKING:
    from .tracking import Analysis, Series

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 900, 200, 90, 24, 24
_STYLE = (
    "body{font:14px sans-serif;margin:2em;color:#222}table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}caption{text-align:left;font-weight:bold}"
    "svg{max-width:100%}"
)


def sparkline(sizes: Sequence[int], columns: int) -> str:
    """The highest of each stretch, as one character each."""
    n, top = min(columns, len(sizes)), max(sizes, default=0)
    highest = [max(sizes[len(sizes) * at // n : len(sizes) * (at + 1) // n]) for at in range(n)]
    return "".join(_BLOCKS[min(7, size * 8 // top) if top else 0] for size in highest)


def _curve(one: Series, top: int, seconds: float) -> str:
    across, down = _WIDTH - _LEFT - 10, _HEIGHT - _TOP - _BOTTOM
    points = (
        f"{_LEFT + across * time / seconds:.1f},{_TOP + down * (1 - size / top):.1f}"
        for time, size in zip(one.seconds, one.bytes)
    )
    return f'<polyline fill="none" stroke="#1f77b4" stroke-width="1.5" points="{" ".join(points)}"/>'


def _labels(one: Series, top: int, seconds: float) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    return [
        f'<text x="0" y="14" font-weight="bold">{html.escape(one.place)} ({one.source})</text>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{text_of(top)}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_WIDTH - 10}" y="{bottom + 16}" text-anchor="end">{seconds:.1f} s</text>',
        f'<path fill="none" stroke="#999" d="M{_LEFT},{_TOP}V{bottom}H{_WIDTH - 10}"/>',
    ]


def _marks(analysis: Analysis, seconds: float) -> list[str]:
    lines = []
    for mark in analysis.marks:
        across = _LEFT + (_WIDTH - _LEFT - 10) * mark.seconds / seconds
        title = html.escape(f"{mark.name}, {mark.seconds:.2f} s")
        where = f'x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"'
        lines.append(f'<line {where} stroke="#ccc"><title>{title}</title></line>')
    return lines


def svg(analysis: Analysis) -> str:
    """A curve for each place, one below the other, with the marks."""
    seconds = analysis.seconds or 1.0
    height = _HEIGHT * len(analysis.series)
    body = []
    for at, one in enumerate(analysis.series):
        top = max(one.bytes) or 1
        drawn = [*_marks(analysis, seconds), *_labels(one, top, seconds), _curve(one, top, seconds)]
        body.append(f'<g transform="translate(0,{at * _HEIGHT})">{"".join(drawn)}</g>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return f'{head} font-family="sans-serif" font-size="12">{"".join(body)}</svg>\n'


def page(analysis: Analysis) -> str:
    title = html.escape(analysis.label or "memory")
    said = "".join(f"<li>{html.escape(str(one))}</li>" for one in (*analysis.checks, *analysis.alerts))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{analysis._repr_html_()}{svg(analysis)}<ul>{said}</ul></body></html>\n"
    )


def _png(analysis: Analysis, path: str) -> None:
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise error_of(
            "MT_EUNSUPPORTED",
            f"a PNG needs matplotlib; install it (pip install matplotlib), or save .svg or .html: {error}",
        ) from None
    figure = Figure(figsize=(9, 2.2 * len(analysis.series)), layout="constrained")
    for at, one in enumerate(analysis.series, 1):
        axes = figure.add_subplot(len(analysis.series), 1, at)
        axes.plot(one.seconds, [size / (1 << 20) for size in one.bytes])
        axes.set_title(f"{one.place} ({one.source})", loc="left")
        axes.set_ylabel("MiB")
        axes.set_ylim(bottom=0)
        for mark in analysis.marks:
            axes.axvline(mark.seconds, color="#ccc", linewidth=1)
    figure.savefig(path)


def save(analysis: Analysis, path: str) -> None:
    ending = os.path.splitext(path)[1]
    writers: dict[str, Callable[[Analysis], str]] = {
        ".html": page,
        ".svg": svg,
        ".json": lambda analysis: json.dumps(analysis.to_dict(), indent=2) + "\n",
    }
    if ending == ".png":
        _png(analysis, path)
    elif ending in writers:
        with open(path, "w", encoding="utf-8") as file:
            file.write(writers[ending](analysis))
    else:
        raise error_of("MT_EARG", f"{path} has no ending that is known; there are .html, .svg, .png and .json")
