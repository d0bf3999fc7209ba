"""Figures of game scores: learning curves beside reference levels, and comparisons over many games."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bootdqn.analysis.stats import Interval
from bootdqn.plots.style import AGENT_COLOURS, LETTERS_PER_INCH, MARKERS, SMALL, drawing

_NUM_MARKERS = 12
"""The approximate number of markers on a curve."""
_PAPER_COLOUR = "#8A8A8A"

ScoreLine = tuple[NDArray[Any], NDArray[np.floating]]
"""Numbers of frames, and the value of the curve at each of them."""


class Curve(NamedTuple):
    """The learning curves of all seeds of one configuration."""

    label: str
    colour: str
    lines: Sequence[ScoreLine]
    """One line per seed."""


class Level(NamedTuple):
    """A reference value that curves are compared with, drawn as a horizontal line."""

    label: str
    value: float
    colour: str
    style: str
    """Line style in matplotlib's notation."""


class CurvePanel(NamedTuple):
    """One set of axes with learning curves."""

    title: str
    ylabel: str
    curves: Sequence[Curve]
    levels: Sequence[Level] = ()
    """Levels far from all curves are named above the panel instead of drawn, as they would flatten the curves."""


def save_curves(
    stem: Path, title: str, panels: Sequence[CurvePanel], *, columns: int, footer: Sequence[str]
) -> None:
    """Draw values over frames, with a thin line per seed and a thick one for their mean.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        panels: panels row by row.
        columns: number of panels in a row.
        footer: footnotes in small print.
    """
    rows = -(-len(panels) // columns)
    width = 5.2 if columns == 1 else 3.5
    size = (1.6 + width * columns, 1.1 + (3.0 if rows == 1 else 2.3) * rows)
    with drawing(stem, title, size, footer) as figure:
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        notes = [_far_levels(panel, width) for panel in panels]
        handles: dict[str, Any] = {}
        for index, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            for number, curve in enumerate(panel.curves):
                handles[curve.label] = _draw_curve(axes, curve, MARKERS[number % len(MARKERS)])
            for level in _near_levels(panel):
                style = {"color": level.colour, "linestyle": level.style, "linewidth": 1.0}
                handles[level.label] = axes.axhline(level.value, **style)
            axes.set_title(panel.title, loc="left", fontsize=10, pad=6 + 9 * max(map(len, notes)))
            note = axes.text(0, 1.02, "\n".join(notes[index]), transform=axes.transAxes, fontsize=SMALL)
            note.set_in_layout(False)  # the title makes room for it
            if index % columns == 0 or panel.ylabel != panels[index - 1].ylabel:
                axes.set_ylabel(panel.ylabel)
            if index + columns >= len(panels):
                axes.set_xlabel("frames (millions)")
            axes.set_xlim(left=0)
            axes.ticklabel_format(style="plain", useOffset=False)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        levels = {level.label for panel in panels for level in panel.levels}
        ordered = sorted(handles, key=lambda label: label in levels)
        figure.legend([handles[label] for label in ordered], ordered, loc="outside right upper", fontsize=8)


def _draw_curve(axes: Axes, curve: Curve, marker: str) -> Line2D:
    """Draw the lines of all seeds and their mean, and return the latter."""
    if len(curve.lines) > 1:
        for frames, values in curve.lines:
            axes.plot(frames / 1e6, values, color=curve.colour, linewidth=0.6, alpha=0.4)
    frames, values = mean_line(curve.lines)
    every = -(-len(frames) // _NUM_MARKERS) or None
    style = {"marker": marker, "markersize": 4, "markevery": every, "linewidth": 1.6}
    return axes.plot(frames / 1e6, values, color=curve.colour, **style)[0]


def mean_line(lines: Sequence[ScoreLine]) -> ScoreLine:
    """Mean over seeds, at all points of any seed within the range of frames that all seeds have covered."""
    first, last = max(frames[0] for frames, _ in lines), min(frames[-1] for frames, _ in lines)
    frames = np.unique(np.concatenate([frames for frames, _ in lines]))
    frames = frames[(frames >= first) & (frames <= last)]
    return frames, np.mean([np.interp(frames, *line) for line in lines], axis=0)


def _near_levels(panel: CurvePanel) -> list[Level]:
    """Levels that are near enough to the curves to leave them at least a third of the panel's height."""
    values = np.concatenate([values for curve in panel.curves for _, values in curve.lines])
    low, high = values.min(), values.max()
    margin = max(high - low, 0.1 * abs(low), 0.1 * abs(high), 1.0)
    return [level for level in panel.levels if low - margin <= level.value <= high + margin]


def _far_levels(panel: CurvePanel, width: float) -> list[str]:
    """The names and values of all other levels, wrapped to the width of the panel in inches."""
    near = _near_levels(panel)
    far = [level for level in panel.levels if level not in near]
    top = max((values.max() for curve in panel.curves for _, values in curve.lines), default=0.0)
    lines = []
    for arrow, levels in (("↑", [x for x in far if x.value > top]), ("↓", [x for x in far if x.value <= top])):
        names = [f"{level.label} {level.value:g}".replace(" ", "\N{NO-BREAK SPACE}") for level in levels]
        if names:
            lines += textwrap.wrap(f"{arrow} {', '.join(names)}", int(LETTERS_PER_INCH * (width - 0.6)))
    return lines


class Game(NamedTuple):
    """How two agents compare in one game; unknown values are NaN."""

    title: str
    best: float
    """Ratio of the agents' best scores."""
    paper_best: float
    """The same ratio according to the paper."""
    cumulative: float
    """Ratio of the agents' cumulative rewards."""
    frames_to_human: Mapping[str, Sequence[int | None]]
    """By agent, the frames until every seed reached a human's score; None if it never did."""


class Profile(NamedTuple):
    """A performance profile: the share of runs with a score above every threshold."""

    label: str
    colour: str
    style: str
    shares: Interval
    """Shares with their intervals [T]; the ends of the intervals may be NaN."""


def save_games(
    stem: Path,
    title: str,
    games: Sequence[Game],
    *,
    thresholds: NDArray[np.floating],
    profiles: Sequence[Profile],
    footer: Sequence[str],
) -> None:
    """Draw score ratios and frames to a human's score for every game, and performance profiles below.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        games: games from the top, one line each.
        thresholds: thresholds of the profiles [T].
        profiles: performance profiles, which may be empty.
        footer: footnotes in small print.
    """
    heights = (0.19 * len(games), 2.6)
    with drawing(stem, title, (11.5, 1.9 + sum(heights)), footer) as figure:
        subfigures: Any = figure.subfigures(2, 1, height_ratios=(heights[0] + 1.0, heights[1] + 0.9))
        upper, lower = subfigures
        panels = upper.subplots(1, 3, sharey=True, width_ratios=(1.15, 1.0, 1.0))
        ours = AGENT_COLOURS["boot"]
        best = {ours: [game.best for game in games], _PAPER_COLOUR: [game.paper_best for game in games]}
        _draw_ratios(panels[0], best, limit=16)
        panels[0].set_title("best score above random play,\nboot over dqn", loc="left", fontsize=9)
        _draw_ratios(panels[1], {ours: [game.cumulative for game in games]}, limit=100)
        panels[1].set_title("cumulative reward above random play,\nboot over dqn", loc="left", fontsize=9)
        for axes in panels[:2]:
            axes.set_xlabel("ratio (log scale)")
        agents = _draw_frames(panels[2], games)
        panels[2].set_title("frames to the score of a human,\na dot a seed that got there", loc="left", fontsize=9)
        panels[2].set_xlabel("frames (millions)")
        panels[0].set_yticks(range(len(games)), [game.title for game in games], fontsize=8)
        panels[0].set_ylim(len(games) - 0.4, -0.6)
        for axes in panels[1:]:
            axes.tick_params(left=False)
        axes, key = lower.subplots(1, 2, width_ratios=(1.5, 1.0))
        lines = [_draw_profile(axes, thresholds, profile) for profile in profiles]
        axes.set_xscale("log")
        axes.set_xlim(thresholds[0], thresholds[-1])
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("human-normalised score τ; 0 is random play, 1 a human")
        axes.set_ylabel("share of runs with best score > τ")
        key.set_axis_off()
        bars = [
            Patch(color=ours, label="our runs"),
            Patch(color=_PAPER_COLOUR, label="the paper's, against its DDQN"),
        ]
        key.legend(handles=[*bars, *agents, *lines], loc="upper left", fontsize=8)


def _draw_ratios(axes: Axes, ratios: Mapping[str, Sequence[float]], limit: float) -> None:
    """Draw bars that start at 1 on a logarithmic axis, with the numbers to the right of the axis.

    Args:
        axes: axes to draw on.
        ratios: by colour, the ratio of every line.
        limit: end of the axis; bars are cut there and at its inverse.
    """
    axes.set_xscale("log")
    axes.set_xlim(1 / limit, limit)
    ticks = [1 / limit, limit**-0.5, 1, limit**0.5, limit]
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.xaxis.minorticks_off()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_axisbelow(True)
    height = 0.8 / len(ratios)
    for index, (colour, values) in enumerate(ratios.items()):
        offset = (index - (len(ratios) - 1) / 2) * height
        known = {y: ratio for y, ratio in enumerate(values) if not np.isnan(ratio)}
        lengths = np.clip([*known.values()], 1 / limit, limit) - 1
        axes.barh(np.array([*known]) + offset, lengths, height, left=1, color=colour)
        for y, ratio in known.items():
            axes.text(
                1.12 + 0.14 * index,
                y,
                ratio_text(ratio),
                color=colour,
                fontsize=SMALL,
                ha="right",
                va="center",
                transform=axes.get_yaxis_transform(),
            )


def ratio_text(ratio: float) -> str:
    """A ratio with at most three digits, or a dash if it is unknown."""
    if np.isnan(ratio):
        return "-"
    return "∞" if np.isinf(ratio) else f"{ratio:.2f}" if abs(ratio) < 10 else f"{ratio:.0f}"


def _draw_frames(axes: Axes, games: Sequence[Game]) -> list[Line2D]:
    """Draw a dot for every seed that reached a human's score, and return the handles of the legend."""
    if not any(frames for game in games for seeds in game.frames_to_human.values() for frames in seeds):
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no run got there", transform=axes.transAxes, ha="center", color="0.4")
        return []
    agents = dict.fromkeys(agent for game in games for agent in game.frames_to_human)
    for index, agent in enumerate(agents):
        points = [
            (frames / 1e6, y + 0.3 * (index - (len(agents) - 1) / 2))
            for y, game in enumerate(games)
            for frames in game.frames_to_human.get(agent, ())
            if frames is not None
        ]
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.plot(x, y, MARKERS[index], color=AGENT_COLOURS[agent], markersize=3.5, alpha=0.8)
    axes.set_xlim(left=0)
    return [
        Line2D([], [], ls="", marker=MARKERS[i], color=AGENT_COLOURS[agent], label=f"{agent}, frames to human")
        for i, agent in enumerate(agents)
    ]


def _draw_profile(axes: Axes, thresholds: NDArray[np.floating], profile: Profile) -> Line2D:
    """Draw a profile with its band, and return the line."""
    low, high = profile.shares.low, profile.shares.high
    axes.fill_between(thresholds, low, high, step="post", color=profile.colour, alpha=0.2, linewidth=0)
    style = {"color": profile.colour, "linestyle": profile.style, "linewidth": 1.6, "label": profile.label}
    return axes.step(thresholds, profile.shares.estimate, where="post", **style)[0]


class Dots(NamedTuple):
    """Values of one agent on the named lines of a figure."""

    label: str
    colour: str
    marker: str
    filled: bool
    values: Mapping[str, Sequence[float]]
    """By the name of the line, one or more values."""


def save_dots(
    stem: Path,
    title: str,
    lines: Sequence[str],
    panels: Mapping[str, Sequence[Dots]],
    *,
    xlabel: str,
    share_x: bool,
    footer: Sequence[str],
) -> None:
    """Draw values as dots on named lines, in panels side by side.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        lines: names of the lines, from the top.
        panels: the dots of every panel, by its title.
        xlabel: label of the x axes.
        share_x: whether all panels have the same range of x.
        footer: footnotes in small print.
    """
    with drawing(stem, title, (2.0 + 4.0 * len(panels), 1.6 + 0.27 * len(lines)), footer) as figure:
        grid = figure.subplots(1, len(panels), sharex=share_x, sharey=True, squeeze=False)[0]
        for axes, (name, groups) in zip(grid, panels.items(), strict=True):
            for index, dots in enumerate(groups):
                offset = 0.12 * (index - (len(groups) - 1) / 2)
                points = [
                    (value, lines.index(line) + offset) for line, values in dots.values.items() for value in values
                ]
                x, y = zip(*points, strict=True) if points else ((), ())
                face = dots.colour if dots.filled else "none"
                axes.plot(x, y, dots.marker, color=dots.colour, mfc=face, ms=5, alpha=0.9, label=dots.label)
            axes.axvline(0, color="black", linewidth=0.8)
            axes.set_title(name, loc="left", fontsize=10)
            axes.set_xlabel(xlabel)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=3, fontsize=8)
        grid[0].set_yticks(range(len(lines)), lines)
        grid[0].set_ylim(len(lines) - 0.5, -0.5)
