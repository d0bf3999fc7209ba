"""Figures: drawn from numbers, with colours that colour-blind readers can tell apart."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from bootdqn.runs.directory import write_atomically

# Okabe and Ito's palette.
AGENT_COLOURS: dict[str, str] = {
    "boot": "#0072B2",
    "boot+": "#56B4E9",
    "thompson": "#E69F00",
    "ensemble": "#009E73",
    "dqn": "#CC79A7",
}
_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "bootdqn",
}
_WINDOW = 10
"""Episodes that curves are averaged over."""

Curves = Sequence[ArrayLike]
"""One array [episodes] a seed; after an interruption lengths may differ."""


def save_learning_curve(
    stem: Path, title: str, *, returns: Curves, greedy: Curves, spread: Curves, best: float, colour: str
) -> None:
    """Return and head disagreement over the episodes of a run.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        returns: of the training episodes.
        greedy: of the evaluations by vote.
        spread: standard deviation of the values over heads.
        best: the optimal return.
        colour: of the agent.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 5.2), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        _draw_seeds(top, greedy, "#999999", "by vote")
        _draw_seeds(top, returns, colour, "training episodes")
        top.axhline(best, color="black", linewidth=0.8, linestyle=":", label=f"optimum {best:g}")
        top.set_ylabel(f"return, mean of {_WINDOW} episodes")
        top.legend(loc="center right")
        num_seeds = len(returns)
        top.set_title(f"{title}, {num_seeds} seed{'s' if num_seeds > 1 else ''}", loc="left")
        _draw_seeds(bottom, spread, colour, None)
        bottom.set_ylabel("std of Q over heads")
        bottom.set_xlabel("episode")
        bottom.set_ylim(bottom=0)
        _save(figure, stem)


def save_comparison(stem: Path, title: str, optimal: Mapping[str, Curves], count: int) -> None:
    """How many optimal episodes each agent has had, over episodes: a line a seed.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        optimal: by agent, the running number of optimal episodes of every seed.
        count: how many mean "learned".
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(9.0, 3.0), layout="constrained")
        panels = figure.subplots(1, len(optimal), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, curves) in zip(panels, optimal.items(), strict=True):
            arrays = [np.asarray(curve) for curve in curves]
            for array in arrays:
                axes.plot(np.arange(1, len(array) + 1), array, color=AGENT_COLOURS[name], linewidth=1.4, alpha=0.8)
            axes.axhline(count, color="black", linewidth=0.8, linestyle=":")
            solved = sum(array[-1] >= count for array in arrays)
            axes.set_title(f"{name}: {solved} of {len(curves)} learn", loc="left", fontsize=10)
            axes.set_xlabel("episode")
        panels[0].set_ylabel("optimal episodes so far")
        panels[-1].text(1, count, f"learned: {count}", va="bottom", fontsize=8)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        _save(figure, stem)


def _draw_seeds(axes: Axes, curves: Curves, colour: str, label: str | None) -> None:
    """A thin line a seed, and their median where all have values."""
    arrays = [_running_mean(np.asarray(curve)) for curve in curves]
    for array in arrays:
        axes.plot(np.arange(1, len(array) + 1), array, color=colour, linewidth=0.6, alpha=0.35)
    shortest = min(map(len, arrays))
    median = np.median([array[:shortest] for array in arrays], axis=0)
    axes.plot(np.arange(1, shortest + 1), median, color=colour, linewidth=1.8, label=label)


def _running_mean(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Mean of each value and up to `_WINDOW` - 1 before it, over those that are not NaN."""
    padded = np.concatenate([np.full(_WINDOW - 1, np.nan), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)
    known = ~np.isnan(windows)
    total = np.where(known, windows, 0.0).sum(axis=1)
    return np.divide(total, known.sum(axis=1), out=np.full(len(values), np.nan), where=known.any(axis=1))


def _save(figure: Figure, stem: Path) -> None:
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    figure.savefig(svg, format="svg", metadata={"Date": None})
    write_atomically(stem.with_suffix(".png"), png.getvalue())
    write_atomically(stem.with_suffix(".svg"), svg.getvalue())
