"""Cumulative regret over episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bootdqn.plots.style import AGENT_COLOURS, drawing


class RegretCurve(NamedTuple):
    """The cumulative regret of one agent: its mean over seeds after some numbers of episodes."""

    label: str
    agent: str
    """Name of the agent, which decides the colour."""
    style: str
    """Line style in matplotlib's notation."""
    episodes: NDArray[np.int_]
    means: NDArray[np.floating]
    half_widths: NDArray[np.floating]
    """Half widths of the 95% confidence intervals of the means; NaN if there is only one seed."""


class RegretPanel(NamedTuple):
    """One set of axes of a figure of regret."""

    title: str
    curves: Sequence[RegretCurve]
    bound: Callable[[NDArray[np.floating]], NDArray[np.floating]] | None = None
    """A function of the number of episodes that is drawn for comparison."""
    bound_label: str = ""


def save_regret(
    stem: Path,
    title: str,
    panels: Sequence[Sequence[RegretPanel]],
    *,
    ylabels: Sequence[str],
    log: bool = False,
) -> None:
    """Draw cumulative regret over episodes, with one line per agent and a band for the interval of its mean.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        panels: rows of panels.
        ylabels: labels of the y axes, one per row.
        log: whether both axes are logarithmic.
    """
    rows, columns = len(panels), len(panels[0])
    size = (2.0 + (3.0 if columns > 1 else 5.0) * columns, 0.6 + (2.8 if rows > 1 else 4.0) * rows)
    with drawing(stem, title, size) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey="row", squeeze=False)
        handles: dict[str, Any] = {}
        for all_axes, row, ylabel in zip(grid, panels, ylabels, strict=True):
            for axes, panel in zip(all_axes, row, strict=True):
                for curve in panel.curves:
                    handles[curve.label] = _draw_regret(axes, curve)
                if panel.bound is not None:
                    x = panel.curves[0].episodes.astype(float)
                    handles[panel.bound_label] = axes.plot(x, panel.bound(x), "k:", linewidth=1.0)[0]
                if log:
                    axes.set_xscale("log")
                    axes.set_yscale("log")
                axes.set_title(panel.title, loc="left", fontsize=10)
            all_axes[0].set_ylabel(ylabel)
        for axes in grid[-1]:
            axes.set_xlabel("episode")
        grid[0, -1].legend(
            handles.values(), handles.keys(), fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )


def _draw_regret(axes: Axes, curve: RegretCurve) -> Any:
    """Draw a line with its band, and return the line."""
    colour = AGENT_COLOURS[curve.agent]
    line = axes.plot(curve.episodes, curve.means, color=colour, linestyle=curve.style, linewidth=1.6)[0]
    low, high = curve.means - curve.half_widths, curve.means + curve.half_widths
    axes.fill_between(curve.episodes, low, high, color=colour, alpha=0.2, linewidth=0)
    return line
