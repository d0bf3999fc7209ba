"""Times to learn, as curves over a varied quantity or as dots per setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bootdqn.plots.style import MARKERS, drawing

_TICKS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_MAX_TICKS = 6
"""The largest number of values on the x axis for which each value gets its own tick."""


class Series(NamedTuple):
    """One line of a figure: the times to learn for several values of the varied quantity."""

    label: str
    colour: str
    times: Mapping[float, Sequence[float | None]]
    """By the value on the x axis, the episodes that every seed took; None if it did not learn."""


class Panel(NamedTuple):
    """One set of axes of a figure of times to learn."""

    title: str
    xlabel: str
    series: Sequence[Series]
    bound: Callable[[NDArray[np.floating]], NDArray[np.floating]] | None = None
    """A function of x that is drawn for comparison."""
    bound_label: str = ""
    log_x: bool = False
    """Whether the x axis is logarithmic."""


def save_times_to_learn(
    stem: Path, title: str, panels: Sequence[Panel], *, cap: int, ylabel: str = "episodes to learn"
) -> None:
    """Draw median times to learn, with one dot per seed, and a cross at the top for seeds that did not learn.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        panels: panels from left to right.
        cap: the number of episodes after which training ends.
        ylabel: label of the shared y axis.
    """
    with drawing(stem, title, (1.2 + 4.4 * len(panels), 4.0)) as figure:
        all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(all_axes, panels, strict=True):
            _draw_panel(axes, panel, cap)
        first = all_axes[0]
        groups = [times for panel in panels for series in panel.series for times in series.times.values()]
        first.set_ylabel(f"{ylabel}, median of seeds" if any(len(times) > 1 for times in groups) else ylabel)
        lowest = min([cap, *(time for times in groups for time in times if time is not None)])
        first.set_ylim(0.8 * lowest, cap * _lane(max(len(panel.series) for panel in panels)))
        ticks = [tick for tick in _TICKS if first.get_ylim()[0] <= tick <= cap]
        first.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        first.yaxis.minorticks_off()
        for axes in all_axes:
            axes.text(
                1.0,
                cap * 1.02,
                f"×: a seed needs more than {cap:,}",
                ha="right",
                va="bottom",
                fontsize=7,
                transform=axes.get_yaxis_transform(),
            )
        handles, labels = first.get_legend_handles_labels()
        all_axes[-1].legend(handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_panel(axes: Axes, panel: Panel, cap: int) -> None:
    """Draw all series of a panel and its bound."""
    for index, series in enumerate(panel.series):
        _draw_series(axes, series, cap, shift=index)
    if panel.bound is not None:
        low, high = axes.get_xlim()
        x = np.linspace(max(low, 1), high, 400)
        y = panel.bound(x)
        axes.plot(x[y <= cap], y[y <= cap], color="black", linewidth=0.9, ls="--", label=panel.bound_label)
        axes.set_xlim(low, high)
    axes.axhline(cap, color="black", linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    values = sorted({value for series in panel.series for value in series.times})
    if panel.log_x:
        axes.set_xscale("log")
    if len(values) <= _MAX_TICKS:
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.xaxis.minorticks_off()
    axes.set_xlabel(panel.xlabel)
    axes.set_title(panel.title, loc="left", fontsize=10)


def _draw_series(axes: Axes, series: Series, cap: int, *, shift: int) -> None:
    """Draw a line through the finite medians, one dot per seed, and a cross if some seed did not learn."""
    xs = sorted(series.times)
    medians = [np.median([np.inf if t is None else t for t in series.times[x]]) for x in xs]
    shown = np.array([m if np.isfinite(m) else np.nan for m in medians])
    axes.plot(xs, shown, color=series.colour, marker=MARKERS[shift % len(MARKERS)], ms=5, label=series.label)
    for x in xs:
        known = [t for t in series.times[x] if t is not None]
        axes.plot([x] * len(known), known, ".", color=series.colour, markersize=3, alpha=0.5)
        if len(known) < len(series.times[x]):
            axes.plot([x], [cap * _lane(shift)], "x", color=series.colour, markersize=4)


def _lane(index: int) -> float:
    """Height of a series' crosses as a multiple of the cap, so that crosses of two series never overlap."""
    return 1.35 * 1.1**index


def save_dot_plot(
    stem: Path,
    title: str,
    rows: Sequence[str],
    values: Mapping[str, Sequence[Sequence[float]]],
    *,
    colours: Mapping[str, str],
    xlabel: str,
) -> None:
    """Draw every value as a dot and every mean as a tick, with one panel per name and one line per row.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        rows: labels of the rows, from the top.
        values: by name, the values of every row.
        colours: by name, the colour of the dots.
        xlabel: label of the shared x axis.
    """
    with drawing(stem, title, (1.5 + 2.3 * len(values), 1.4 + 0.25 * len(rows))) as figure:
        panels = figure.subplots(1, len(values), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, groups) in zip(panels, values.items(), strict=True):
            for height, group in enumerate(groups):
                axes.plot(group, [height] * len(group), ".", color=colours[name], alpha=0.6)
                if group:
                    axes.plot([np.mean(group)], [height], "|", color="black", markersize=10)
            axes.set_title(name, loc="left", fontsize=10)
        panels[0].set_yticks(range(len(rows)), rows)
        panels[0].invert_yaxis()
        figure.supxlabel(xlabel, fontsize=10)


def save_dots_by_row(
    stem: Path,
    title: str,
    rows: Sequence[str],
    panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
    *,
    colours: Mapping[str, str],
) -> None:
    """Draw every value as a dot on a logarithmic axis from 0, with a lane per name within each row.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        rows: labels of the rows, from the top.
        panels: by title, and by name, the values of every row.
        colours: by name, the colour of the dots.
    """
    with drawing(stem, title, (1.8 + 3.6 * len(panels), 1.5 + 0.42 * len(rows))) as figure:
        all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (heading, values) in zip(all_axes, panels.items(), strict=True):
            for lane, (name, groups) in enumerate(values.items()):
                shift = 0.7 * ((lane + 0.5) / len(values) - 0.5)
                marker = MARKERS[lane % len(MARKERS)]
                heights = [row + shift for row, group in enumerate(groups) for _ in group]
                dots = [value for group in groups for value in group]
                axes.plot(dots, heights, marker, color=colours[name], markersize=4, alpha=0.6, label=name)
                for row, group in enumerate(groups):
                    if group:
                        axes.plot([np.median(group)], [row + shift], "|", color=colours[name], markersize=11)
            axes.set_xscale("symlog", linthresh=10)
            axes.set_xlim(left=-1)
            axes.xaxis.minorticks_off()
            axes.grid(axis="x", alpha=0.3)
            axes.set_title(heading, loc="left", fontsize=9)
        all_axes[0].set_yticks(range(len(rows)), rows)
        all_axes[0].invert_yaxis()
        handles, labels = all_axes[0].get_legend_handles_labels()
        all_axes[-1].legend(handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
