"""Learning curves of single runs, and of several agents side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from bootdqn.plots.style import AGENT_COLOURS, WINDOW, drawing, running_mean
from bootdqn.runs.directory import read_table

Curves = Sequence[ArrayLike]
"""One array [episodes] per seed; their lengths may differ after an interruption."""


class Below(NamedTuple):
    """The lower panel of a learning curve."""

    ylabel: str
    curves: Curves
    log_y: bool = False


def save_learning_curve(
    stem: Path, title: str, *, returns: Curves, greedy: Curves, below: Below | None, best: float, colour: str
) -> None:
    """Draw the returns of all seeds of a run over episodes, optionally with a second panel below.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure, to which the number of seeds is added.
        returns: returns of the training episodes.
        greedy: returns of the evaluations by vote; empty if there were none.
        below: the lower panel.
        best: the optimal return.
        colour: colour of the agent.
    """
    num_seeds = len(returns)
    with drawing(stem, f"{title}, {num_seeds} seed{'s' if num_seeds > 1 else ''}", (7.2, 5.2)) as figure:
        panels = figure.subplots(1 if below is None else 2, 1, sharex=True, squeeze=False)[:, 0]
        top = panels[0]
        if greedy:
            _draw_seeds(top, [running_mean(curve) for curve in greedy], "#999999", "by vote")
        _draw_seeds(top, [running_mean(curve) for curve in returns], colour, "training episodes")
        top.axhline(best, color="black", linewidth=0.8, linestyle=":", label=f"optimum {best:.4g}")
        top.set_ylabel(f"return, mean of {WINDOW} episodes")
        top.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize=8)
        if below is not None:
            _draw_seeds(panels[1], below.curves, colour, None)
            panels[1].set_ylabel(below.ylabel)
            panels[1].set_yscale("log" if below.log_y else "linear")
        panels[-1].set_xlabel("episode")


def _draw_seeds(axes: Axes, curves: Curves, colour: str, label: str | None) -> None:
    """Draw a thin line per seed, and a thick one for their median over the episodes that all seeds have."""
    arrays = [np.asarray(curve) for curve in curves]
    for array in arrays:
        axes.plot(np.arange(1, len(array) + 1), array, color=colour, linewidth=0.6, alpha=0.35)
    shortest = min(map(len, arrays))
    median = np.median([array[:shortest] for array in arrays], axis=0)
    axes.plot(np.arange(1, shortest + 1), median, color=colour, linewidth=1.8, label=label)


def save_run_curve(
    stem: Path, title: str, *, metrics: Path, evaluations: Path, colour: str, note: str = ""
) -> None:
    """Draw the returns of a run over environment steps, and below them how much the heads disagree.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        metrics: the table of episodes.
        evaluations: the table of evaluations, which may be empty.
        colour: colour of the agent.
        note: a footnote in small print.
    """
    episodes, evaluated = (read_table(path) for path in (metrics, evaluations))
    with drawing(stem, title, (7.2, 5.2)) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True)
        steps = [float(row["step"]) for row in episodes]
        returns = np.array([float(row["return"]) for row in episodes])
        top.plot(steps, returns, ".", color=colour, markersize=2, alpha=0.3)
        if episodes:
            label = f"training episodes, mean of {WINDOW}"
            top.plot(steps, running_mean(returns), color=colour, linewidth=1.2, label=label)
        _draw_evaluations(top, evaluated)
        top.set_ylabel("return")
        if top.get_legend_handles_labels()[0]:
            top.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, fontsize=8)
        learned = [row for row in episodes if row["q_spread"]]
        bottom.plot(
            [float(row["step"]) for row in learned],
            running_mean([float(row["q_spread"]) for row in learned]) if learned else [],
            color=colour,
            linewidth=1.2,
        )
        bottom.set_ylabel("std of Q over heads")
        bottom.set_xlabel("environment step")
        if note:
            figure.supxlabel("\n".join(textwrap.wrap(note, 130)), x=0.01, ha="left", fontsize=6, color="#555555")


def _draw_evaluations(axes: Axes, evaluated: Sequence[Mapping[str, str]]) -> None:
    """Draw the mean return of every evaluation: single heads as crosses, vote and mean as lines."""
    heads = [row for row in evaluated if row["policy"].startswith("head")]
    axes.plot(
        [float(row["step"]) for row in heads],
        [float(row["mean_return"]) for row in heads],
        "x",
        color="#7F7F7F",
        markersize=4,
        label="heads alone" if heads else None,
    )
    for policy, style in (("vote", "o-"), ("mean", "s--")):
        rows = [row for row in evaluated if row["policy"] == policy]
        if rows:
            x, y = ([float(row[name]) for row in rows] for name in ("step", "mean_return"))
            axes.plot(x, y, style, color="black", markersize=3, linewidth=1.0, label=f"by {policy}")


def save_comparison(stem: Path, title: str, optimal: Mapping[str, Curves], count: int) -> None:
    """Draw how many optimal episodes each agent has had so far, with one panel per agent and one line per seed.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        optimal: by agent, the running count of optimal episodes of every seed.
        count: the number of optimal episodes after which a seed counts as having learned.
    """
    with drawing(stem, title, (9.0, 3.0)) as figure:
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
