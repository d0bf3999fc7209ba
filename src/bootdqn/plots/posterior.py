"""Posteriors over a function of one variable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bootdqn.plots.style import AGENT_COLOURS, drawing


class PosteriorPanel(NamedTuple):
    """What one method believes about a function of one variable, and what it has seen of it."""

    title: str
    x: NDArray[np.floating]
    """Points at which all curves are given [N]."""
    mean: NDArray[np.floating]
    std: NDArray[np.floating]
    samples: Sequence[NDArray[np.floating]]
    """Curves drawn from the posterior."""
    truth: NDArray[np.floating]
    """The true mean."""
    data: tuple[NDArray[np.floating], NDArray[np.floating]]
    """x and y of the observed data."""
    others: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None
    """x and y of other draws of such data."""


def save_posteriors(stem: Path, title: str, posteriors: Sequence[PosteriorPanel]) -> None:
    """Draw means with bands of one and two standard deviations, sampled functions and data.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        posteriors: one panel each, in two columns if there is more than one.
    """
    columns = min(len(posteriors), 2)
    rows = -(-len(posteriors) // columns)
    with drawing(stem, title, (1.6 + 4.4 * columns, 0.6 + 2.8 * rows)) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        handles: dict[str, Any] = {}
        for axes in grid.flat[len(posteriors) :]:
            axes.set_axis_off()
        for axes, posterior in zip(grid.flat, posteriors, strict=False):
            handles = _draw_posterior(axes, posterior) | handles
            axes.set_title(posterior.title, loc="left", fontsize=10)
            axes.set_xlim(posterior.x[0], posterior.x[-1])
            axes.set_ylim(-2.5, 4.0)
        for axes in grid[-1]:
            axes.set_xlabel("x")
        for axes in grid[:, 0]:
            axes.set_ylabel("y")
        grid[0, -1].legend(
            handles.values(), handles.keys(), fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )


def _draw_posterior(axes: Axes, posterior: PosteriorPanel) -> dict[str, Any]:
    """Draw one panel, and return the handles of its legend by label."""
    colour, x = AGENT_COLOURS["boot"], posterior.x
    handles: dict[str, Any] = {}
    if posterior.others is not None:
        handles["other draws"] = axes.plot(*posterior.others, ".", color="#CC79A7", ms=3, alpha=0.6)[0]
    if posterior.samples:
        for width, alpha in ((2, 0.15), (1, 0.25)):
            low, high = posterior.mean - width * posterior.std, posterior.mean + width * posterior.std
            band = axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0)
            handles[f"± {width} std"] = band
        for curve in posterior.samples:
            handles["samples"] = axes.plot(x, curve, color="#7F7F7F", linewidth=0.6)[0]
        handles["mean"] = axes.plot(x, posterior.mean, color=colour, linewidth=1.8)[0]
    handles["true mean"] = axes.plot(x, posterior.truth, color="black", linewidth=1.0, linestyle="--")[0]
    handles["data"] = axes.plot(*posterior.data, "o", color="#D55E00", ms=4)[0]
    return handles
