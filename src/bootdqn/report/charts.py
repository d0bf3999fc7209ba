"""Charts as SVG, with their numbers attached so that the page's script can show the values at the cursor."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

_WIDTH, _HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 22, 12, 50
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
_CELL = 20
_UNKNOWN = "#888888"


class ChartLine(NamedTuple):
    """The average learning curve of one configuration; arrays are [points]."""

    label: str
    colour: str
    dash: int
    """Index of the dash pattern, which tells lines of one colour apart."""
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    """Lower end of the band around the line; NaN where there is no band."""
    high: NDArray[np.float64]
    """Upper end of the band."""
    counts: NDArray[np.int64]
    """Number of seeds that each point averages."""


class Chart(NamedTuple):
    """One set of axes with learning curves."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[ChartLine]


def chart_html(chart: Chart) -> str:
    """HTML of a chart, its legend and its numbers; all text is escaped."""
    x_ticks = ticks(0, max(line.x[-1] for line in chart.lines))
    ends = [array[~np.isnan(array)] for line in chart.lines for array in (line.y, line.low, line.high)]
    y_ticks = ticks(min(a.min() for a in ends if len(a)), max(a.max() for a in ends if len(a)))
    box = (_LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM)

    def px(x: float) -> float:
        return box[0] + (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (box[2] - box[0])

    def py(y: float) -> float:
        return box[3] - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (box[3] - box[1])

    last = max(line.x[-1] for line in chart.lines)
    label = escape(f"learning curves on {chart.title}; arrow keys move along the {chart.xlabel}s")
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" tabindex="0" role="slider" aria-label="{label}" '
        f'aria-valuemin="0" aria-valuemax="{last:g}" aria-valuenow="{last:g}">'
    ]
    middle = (box[1] + box[3]) / 2
    parts += [
        *(
            f'<line class="grid" x1="{box[0]}" x2="{box[2]}" y1="{py(y):.1f}" y2="{py(y):.1f}"/>'
            f'<text x="{box[0] - 7}" y="{py(y) + 4:.1f}" text-anchor="end">{tick_text(y)}</text>'
            for y in y_ticks
        ),
        *(f'<text x="{px(x):.1f}" y="{box[3] + 18}" text-anchor="middle">{tick_text(x)}</text>' for x in x_ticks),
        f'<text x="{(box[0] + box[2]) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(chart.xlabel)}</text>',
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(chart.ylabel)}</text>',
    ]
    for line in chart.lines:
        known = ~np.isnan(line.low)
        edge = [*zip(line.x[known], line.high[known], strict=True)]
        edge += reversed([*zip(line.x[known], line.low[known], strict=True)])
        if edge:
            parts.append(f'<polygon fill="{_css(line.colour)}" points="{_points(edge, px, py)}"/>')
    for line in chart.lines:
        points = _points(zip(line.x, line.y, strict=True), px, py)
        parts.append(f'<polyline {_stroke(line)} points="{points}"/>')
    data = {
        "box": box,
        "x": [x_ticks[0], x_ticks[-1]],
        "y": [y_ticks[0], y_ticks[-1]],
        "xlabel": chart.xlabel,
        "lines": [
            {name: numbers(getattr(line, name)) for name in ("x", "y", "low", "high", "counts")}
            for line in chart.lines
        ],
    }
    keys = "".join(
        f'<li><svg viewBox="0 0 24 8" aria-hidden="true"><polyline {_stroke(line)} points="0,4 24,4"/></svg>'
        f"<span>{escape(line.label)}</span> <output></output></li>"
        for line in chart.lines
    )
    return (
        f'<figure class="chart"><figcaption>{escape(chart.title)}</figcaption>{"".join(parts)}'
        f'<g class="cursor"></g></svg><p class="at"></p><ul class="legend">{keys}</ul>'
        f'<script type="application/json">{safe_json(data)}</script></figure>'
    )


def _css(colour: str) -> str:
    """The colour in CSS; black becomes the colour of the text, as it would not show on a dark page."""
    return "currentColor" if colour == "#000000" else colour


def _stroke(line: ChartLine) -> str:
    return f'stroke="{_css(line.colour)}" stroke-dasharray="{_DASHES[line.dash % len(_DASHES)]}"'


def _points(
    points: Iterable[tuple[float, float]], px: Callable[[float], float], py: Callable[[float], float]
) -> str:
    return " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)


def numbers(values: Iterable[float]) -> list[float | None]:
    """Numbers for JSON, with six digits and with null in place of NaN."""
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in values]


def safe_json(value: Any) -> str:
    """JSON that is safe inside of a script element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def ticks(low: float, high: float) -> list[float]:
    """About five evenly spaced round numbers that cover the range from `low` to `high`."""
    if high - low <= 1e-9 * max(abs(low), abs(high)) + 1e-300:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10, 20) if m * power >= raw)
    return [float(f"{i * step:.12g}") for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def tick_text(value: float) -> str:
    """A short form of a number, such as 12k or 1.5M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def heat_map(matrix: Sequence[Sequence[float | None]]) -> str:
    """SVG of the correlations of heads [K, K], dark for independent heads and bright for identical ones."""
    side = _CELL * (len(matrix) + 1)
    width = f"{side * 1.25:.0f}px"
    parts = [
        f'<svg class="heat" viewBox="0 0 {side} {side}" style="width:{width}" role="img" '
        'aria-label="correlation of every two heads">'
    ]
    for i, row in enumerate(matrix):
        centre = _CELL * (i + 1.5)
        parts.append(f'<text x="{_CELL - 5}" y="{centre + 4}" text-anchor="end">{i}</text>')
        parts.append(f'<text x="{centre}" y="{_CELL - 6}" text-anchor="middle">{i}</text>')
        for j, value in enumerate(row):
            known = "unknown" if value is None else f"{value:.2f}"
            parts.append(
                f'<rect x="{_CELL * (j + 1)}" y="{_CELL * (i + 1)}" width="{_CELL - 1}" height="{_CELL - 1}" '
                f'fill="{heat(value)}"><title>heads {i} and {j}: {known}</title></rect>'
            )
    return "".join([*parts, "</svg>"])


def heat(value: float | None) -> str:
    """The colour of a correlation; the scale from 0 to 1 is readable for colour-blind people."""
    return _UNKNOWN if value is None else to_hex(colormaps["cividis"](min(max(value, 0.0), 1.0)))
