"""Figures of game scores: learning curves beside known levels, and many games at once."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bootdqn.figures import AGENT_COLOURS, MARKERS, STYLE, save_figure
from bootdqn.stats import Interval

_NUM_MARKERS = 12
"""On a curve, at most about."""
_SMALL = 7
"""Size of letters of what is not to catch the eye."""
_LETTERS_PER_INCH = 19
"""Of that size, about."""
_PAPER_COLOUR = "#8A8A8A"

Line = tuple[NDArray[Any], NDArray[np.floating]]
"""Frames, and a value at each."""


class Curve(NamedTuple):
    """What some seeds of one configuration did."""

    label: str
    colour: str
    lines: Sequence[Line]
    """One a seed."""


class Level(NamedTuple):
    """A value to compare curves with."""

    label: str
    value: float
    colour: str
    style: str
    """Of the line."""


class CurvePanel(NamedTuple):
    """One set of axes."""

    title: str
    ylabel: str
    curves: Sequence[Curve]
    levels: Sequence[Level] = ()
    """Those far from all curves are not drawn but named above the panel, lest they flatten the curves."""


def save_curves(
    stem: Path, title: str, panels: Sequence[CurvePanel], *, columns: int, footer: Sequence[str]
) -> None:
    """Values over frames: a thin line a seed, and a thick one for their mean.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        panels: row by row.
        columns: in a row.
        footer: lines in small print.
    """
    with rc_context(STYLE):
        rows = -(-len(panels) // columns)
        width = 5.2 if columns == 1 else 3.5
        size = (1.6 + width * columns, 1.1 + (3.0 if rows == 1 else 2.3) * rows)
        figure = Figure(figsize=size, layout="constrained")
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
            note = axes.text(0, 1.02, "\n".join(notes[index]), transform=axes.transAxes, fontsize=_SMALL)
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
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        _add_footer(figure, footer)
        save_figure(figure, stem)


def _draw_curve(axes: Axes, curve: Curve, marker: str) -> Line2D:
    """All seeds and their mean, which is returned."""
    if len(curve.lines) > 1:
        for frames, values in curve.lines:
            axes.plot(frames / 1e6, values, color=curve.colour, linewidth=0.6, alpha=0.4)
    frames, values = mean_line(curve.lines)
    every = -(-len(frames) // _NUM_MARKERS) or None
    style = {"marker": marker, "markersize": 4, "markevery": every, "linewidth": 1.6}
    return axes.plot(frames / 1e6, values, color=curve.colour, **style)[0]


def mean_line(lines: Sequence[Line]) -> Line:
    """Mean over seeds, wherever one of them has a value and all have begun and none has ended."""
    first, last = max(frames[0] for frames, _ in lines), min(frames[-1] for frames, _ in lines)
    frames = np.unique(np.concatenate([frames for frames, _ in lines]))
    frames = frames[(frames >= first) & (frames <= last)]
    return frames, np.mean([np.interp(frames, *line) for line in lines], axis=0)


def _near_levels(panel: CurvePanel) -> list[Level]:
    """Levels that leave the curves at least a third of the height."""
    values = np.concatenate([values for curve in panel.curves for _, values in curve.lines])
    low, high = values.min(), values.max()
    margin = max(high - low, 0.1 * abs(low), 0.1 * abs(high), 1.0)
    return [level for level in panel.levels if low - margin <= level.value <= high + margin]


def _far_levels(panel: CurvePanel, width: float) -> list[str]:
    """The other levels in words, in lines that fit the width of the panel in inches."""
    near = _near_levels(panel)
    far = [level for level in panel.levels if level not in near]
    top = max((values.max() for curve in panel.curves for _, values in curve.lines), default=0.0)
    lines = []
    for arrow, levels in (("↑", [x for x in far if x.value > top]), ("↓", [x for x in far if x.value <= top])):
        names = [f"{level.label} {level.value:g}".replace(" ", "\N{NO-BREAK SPACE}") for level in levels]
        if names:
            lines += textwrap.wrap(f"{arrow} {', '.join(names)}", int(_LETTERS_PER_INCH * (width - 0.6)))
    return lines


def _add_footer(figure: Figure, lines: Sequence[str]) -> None:
    """Small print below everything."""
    width = int(_LETTERS_PER_INCH * (figure.get_figwidth() - 0.2))
    text = "\n".join(part for line in lines for part in textwrap.wrap(line, width))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=_SMALL, color="#404040")


class Game(NamedTuple):
    """How two agents compare in one game; NaN where it is not known."""

    title: str
    best: float
    """Best score of the one over that of the other."""
    paper_best: float
    cumulative: float
    """The same of cumulative rewards."""
    frames_to_human: Mapping[str, Sequence[int | None]]
    """By agent, of every seed; None where it did not get there."""


class Profile(NamedTuple):
    """Share of runs above every threshold."""

    label: str
    colour: str
    style: str
    shares: Interval
    """[T]; the ends may be NaN."""


def save_games(
    stem: Path,
    title: str,
    games: Sequence[Game],
    *,
    thresholds: NDArray[np.floating],
    profiles: Sequence[Profile],
    footer: Sequence[str],
) -> None:
    """Ratios of scores and frames to a human's score, a line a game; below, performance profiles.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        games: from the top.
        thresholds: of the profiles [T].
        profiles: may be none.
        footer: lines in small print.
    """
    with rc_context(STYLE):
        heights = (0.19 * len(games), 2.6)
        figure = Figure(figsize=(11.5, 1.9 + sum(heights)), layout="constrained")
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
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        _add_footer(figure, footer)
        save_figure(figure, stem)


def _draw_ratios(axes: Axes, ratios: Mapping[str, Sequence[float]], limit: float) -> None:
    """Bars from 1 on a logarithmic axis, cut at `limit` and its inverse; the numbers stand right of it.

    Args:
        axes: where.
        ratios: by colour, one a line.
        limit: of the axis.
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
                fontsize=_SMALL,
                ha="right",
                va="center",
                transform=axes.get_yaxis_transform(),
            )


def ratio_text(ratio: float) -> str:
    """Three digits at most; a dash where it is not known."""
    if np.isnan(ratio):
        return "-"
    return "∞" if np.isinf(ratio) else f"{ratio:.2f}" if abs(ratio) < 10 else f"{ratio:.0f}"


def _draw_frames(axes: Axes, games: Sequence[Game]) -> list[Line2D]:
    """A dot for every seed that got to a human's score; what is to be explained is returned."""
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
    """A line with its band; returns the line."""
    low, high = profile.shares.low, profile.shares.high
    axes.fill_between(thresholds, low, high, step="post", color=profile.colour, alpha=0.2, linewidth=0)
    style = {"color": profile.colour, "linestyle": profile.style, "linewidth": 1.6, "label": profile.label}
    return axes.step(thresholds, profile.shares.estimate, where="post", **style)[0]


class Dots(NamedTuple):
    """Values of one agent, a line of the figure each."""

    label: str
    colour: str
    marker: str
    filled: bool
    values: Mapping[str, Sequence[float]]
    """By line: one or more."""


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
    """Dots on named lines, in panels side by side.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        lines: their names, from the top.
        panels: by title.
        xlabel: of all panels.
        share_x: whether all panels have the same axis.
        footer: lines in small print.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(2.0 + 4.0 * len(panels), 1.6 + 0.27 * len(lines)), layout="constrained")
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
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        _add_footer(figure, footer)
        save_figure(figure, stem)
