"""Figures: drawn from numbers, with colours that colour-blind readers can tell apart."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from bootdqn.runs.directory import read_table, write_atomically

# Okabe and Ito's palette, a gray and a brown.
COLOURS = ("#D55E00", "#000000", "#7F7F7F")
"""For what is not an agent."""
AGENT_COLOURS: dict[str, str] = {
    "boot": "#0072B2",
    "boot+": "#56B4E9",
    "thompson": "#E69F00",
    "ensemble": "#009E73",
    "dqn": "#CC79A7",
    "psrl": "#D55E00",
    "rlsvi": "#E69F00",
    "ucrl2": "#009E73",
    "ucbvi": "#56B4E9",
    "epsilon-greedy": "#000000",
    "q-learning": "#7F7F7F",
    "optimistic-q": "#8C510A",
}
"""Agents that are never drawn together share some."""
HEAD_COLOURS = (
    *("#332288", "#88CCEE", "#44AA99", "#117733", "#999933"),
    *("#DDCC77", "#CC6677", "#882255", "#AA4499", "#000000"),
)
"""Of heads, by number: Paul Tol's muted colours and black; further heads begin again, so numbers go with them."""
STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "bootdqn",
}
MARKERS = "osD^vP"
_TICKS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_MAX_TICKS = 6
"""Values on an x axis up to which each has a tick."""
WINDOW = 10
"""Episodes that curves are averaged over."""

Curves = Sequence[ArrayLike]
"""One array [episodes] a seed; after an interruption lengths may differ."""


def head_colour(head: int) -> str:
    """The colour that a head has in all pictures."""
    return HEAD_COLOURS[head % len(HEAD_COLOURS)]


def is_light(colour: ArrayLike) -> bool:
    """Whether dark text can be read on a colour, given as red, green and blue from 0 to 1."""
    return bool(np.dot(colour, (0.299, 0.587, 0.114)) > 0.55)


class Below(NamedTuple):
    """What else a learning curve shows, below the returns."""

    ylabel: str
    curves: Curves
    log_y: bool = False


def save_learning_curve(
    stem: Path, title: str, *, returns: Curves, greedy: Curves, below: Below | None, best: float, colour: str
) -> None:
    """Return, and something else below it, over the episodes of a run.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        returns: of the training episodes.
        greedy: of the evaluations by vote; empty where there are none.
        below: the lower panel.
        best: the optimal return.
        colour: of the agent.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.2), layout="constrained")
        panels = figure.subplots(1 if below is None else 2, 1, sharex=True, squeeze=False)[:, 0]
        top = panels[0]
        if greedy:
            _draw_seeds(top, [running_mean(curve) for curve in greedy], "#999999", "by vote")
        _draw_seeds(top, [running_mean(curve) for curve in returns], colour, "training episodes")
        top.axhline(best, color="black", linewidth=0.8, linestyle=":", label=f"optimum {best:.4g}")
        top.set_ylabel(f"return, mean of {WINDOW} episodes")
        top.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize=8)
        num_seeds = len(returns)
        figure.suptitle(f"{title}, {num_seeds} seed{'s' if num_seeds > 1 else ''}", x=0.01, ha="left", fontsize=11)
        if below is not None:
            _draw_seeds(panels[1], below.curves, colour, None)
            panels[1].set_ylabel(below.ylabel)
            panels[1].set_yscale("log" if below.log_y else "linear")
        panels[-1].set_xlabel("episode")
        save_figure(figure, stem)


def save_run_curve(
    stem: Path, title: str, *, metrics: Path, evaluations: Path, colour: str, note: str = ""
) -> None:
    """Returns over steps of a run on a Gymnasium environment, from its tables; below, how far heads disagree.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        metrics: the table of episodes.
        evaluations: the table of evaluations, which may be empty.
        colour: of the agent.
        note: to go below, in small print.
    """
    episodes, evaluated = (read_table(path) for path in (metrics, evaluations))
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.2), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        steps = [float(row["step"]) for row in episodes]
        returns = np.array([float(row["return"]) for row in episodes])
        top.plot(steps, returns, ".", color=colour, markersize=2, alpha=0.3)
        if episodes:
            label = f"training episodes, mean of {WINDOW}"
            top.plot(steps, running_mean(returns), color=colour, linewidth=1.2, label=label)
        heads = [row for row in evaluated if row["policy"].startswith("head")]
        top.plot(
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
                top.plot(x, y, style, color="black", markersize=3, linewidth=1.0, label=f"by {policy}")
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
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        save_figure(figure, stem)


def save_comparison(stem: Path, title: str, optimal: Mapping[str, Curves], count: int) -> None:
    """How many optimal episodes each agent has had, over episodes: a line a seed.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        optimal: by agent, the running number of optimal episodes of every seed.
        count: how many mean "learned".
    """
    with rc_context(STYLE):
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
        save_figure(figure, stem)


class Series(NamedTuple):
    """Times to learn of an agent, or of something else that has a line, for several values of what is varied."""

    label: str
    colour: str
    times: Mapping[float, Sequence[float | None]]
    """By the value on the x axis, the episodes that every seed took; None where it did not learn."""


class Panel(NamedTuple):
    """One set of axes."""

    title: str
    xlabel: str
    series: Sequence[Series]
    bound: Callable[[NDArray[np.floating]], NDArray[np.floating]] | None = None
    """A curve to compare with."""
    bound_label: str = ""
    log_x: bool = False
    """Space the values on the x axis by their ratios."""


def save_times_to_learn(
    stem: Path, title: str, panels: Sequence[Panel], *, cap: int, ylabel: str = "episodes to learn"
) -> None:
    """Median time to learn, with a dot a seed, and a cross at the top where a seed did not learn.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        panels: side by side.
        cap: episodes that a training lasts at most.
        ylabel: of all panels.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 4.4 * len(panels), 4.0), layout="constrained")
        all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(all_axes, panels, strict=True):
            for index, series in enumerate(panel.series):
                _draw_times(axes, series, cap, shift=index)
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
        handles, labels = all_axes[0].get_legend_handles_labels()
        all_axes[-1].legend(handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        save_figure(figure, stem)


class RegretCurve(NamedTuple):
    """Regret so far of one agent: the mean over seeds, after some numbers of episodes."""

    label: str
    agent: str
    """Its name, for the colour."""
    style: str
    """Of the line."""
    episodes: NDArray[np.int_]
    means: NDArray[np.floating]
    half_widths: NDArray[np.floating]
    """Of the 95% interval of the mean; NaN where there is one seed."""


class RegretPanel(NamedTuple):
    """One set of axes."""

    title: str
    curves: Sequence[RegretCurve]
    bound: Callable[[NDArray[np.floating]], NDArray[np.floating]] | None = None
    """A curve over episodes to compare with."""
    bound_label: str = ""


def save_regret(
    stem: Path,
    title: str,
    panels: Sequence[Sequence[RegretPanel]],
    *,
    ylabels: Sequence[str],
    log: bool = False,
) -> None:
    """Regret over episodes, a line an agent with the interval of its mean as a band.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        panels: rows of panels.
        ylabels: of every row.
        log: whether both axes are logarithmic.
    """
    with rc_context(STYLE):
        rows, columns = len(panels), len(panels[0])
        size = (2.0 + (3.0 if columns > 1 else 5.0) * columns, 0.6 + (2.8 if rows > 1 else 4.0) * rows)
        figure = Figure(figsize=size, layout="constrained")
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
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        save_figure(figure, stem)


def _draw_regret(axes: Axes, curve: RegretCurve) -> Any:
    """A line with its band; returns the line."""
    colour = AGENT_COLOURS[curve.agent]
    line = axes.plot(curve.episodes, curve.means, color=colour, linestyle=curve.style, linewidth=1.6)[0]
    low, high = curve.means - curve.half_widths, curve.means + curve.half_widths
    axes.fill_between(curve.episodes, low, high, color=colour, alpha=0.2, linewidth=0)
    return line


def save_dot_plot(
    stem: Path,
    title: str,
    rows: Sequence[str],
    values: Mapping[str, Sequence[Sequence[float]]],
    *,
    colours: Mapping[str, str],
    xlabel: str,
) -> None:
    """Every value a dot and every mean a tick: a panel a name, a line a row.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        rows: labels, from the top.
        values: by name, the values of every row.
        colours: by name.
        xlabel: of every panel.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 2.3 * len(values), 1.4 + 0.25 * len(rows)), layout="constrained")
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
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        save_figure(figure, stem)


def _draw_times(axes: Axes, series: Series, cap: int, *, shift: int) -> None:
    """A line through the medians that exist, a dot a seed, a cross where a seed did not learn."""
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
    """Height above the cap, as a factor, of the crosses of one series: each has a lane of its own."""
    return 1.35 * 1.1**index


def _draw_seeds(axes: Axes, curves: Curves, colour: str, label: str | None) -> None:
    """A thin line a seed, and their median where all have values."""
    arrays = [np.asarray(curve) for curve in curves]
    for array in arrays:
        axes.plot(np.arange(1, len(array) + 1), array, color=colour, linewidth=0.6, alpha=0.35)
    shortest = min(map(len, arrays))
    median = np.median([array[:shortest] for array in arrays], axis=0)
    axes.plot(np.arange(1, shortest + 1), median, color=colour, linewidth=1.8, label=label)


def running_mean(curve: ArrayLike) -> NDArray[np.floating]:
    """Mean of each value and up to `WINDOW` - 1 before it, over those that are not NaN."""
    values = np.asarray(curve)
    padded = np.concatenate([np.full(WINDOW - 1, np.nan), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)
    known = ~np.isnan(windows)
    total = np.where(known, windows, 0.0).sum(axis=1)
    return np.divide(total, known.sum(axis=1), out=np.full(len(values), np.nan), where=known.any(axis=1))


class Posterior(NamedTuple):
    """What a method holds possible about a function of one variable."""

    title: str
    x: NDArray[np.floating]
    """Where the curves are known [N]."""
    mean: NDArray[np.floating]
    std: NDArray[np.floating]
    samples: Sequence[NDArray[np.floating]]
    """Curves drawn from it."""
    truth: NDArray[np.floating]
    """The true mean."""
    data: tuple[NDArray[np.floating], NDArray[np.floating]]
    """x and y of what it has seen."""
    others: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None
    """x and y of other draws of such data."""


def save_posteriors(stem: Path, title: str, posteriors: Sequence[Posterior]) -> None:
    """Means with bands of one and two standard deviations, sampled functions and data: a panel a posterior.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        posteriors: in two columns, where there is more than one.
    """
    with rc_context(STYLE):
        columns = min(len(posteriors), 2)
        rows = -(-len(posteriors) // columns)
        figure = Figure(figsize=(1.6 + 4.4 * columns, 0.6 + 2.8 * rows), layout="constrained")
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
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        save_figure(figure, stem)


def _draw_posterior(axes: Axes, posterior: Posterior) -> dict[str, Any]:
    """What is to be explained, by its label."""
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


class Branch(NamedTuple):
    """One action in a tree of what could be done."""

    actions: str
    """From the root to its end, a letter each: L or R."""
    state: int
    """At its end."""
    rewarding: bool
    informative: bool
    planned: bool
    """Whether the agent can plan to take it for a reward, or information, that lies ahead."""


def save_trees(stem: Path, title: str, trees: Mapping[str, Sequence[Branch]]) -> None:
    """Trees of actions side by side: left gray, right black, planned dashed, rewarding red, informative blue.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: of the figure.
        trees: by title, all branches.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(0.4 + 3.1 * len(trees), 3.6), layout="constrained")
        for axes, (name, branches) in zip(
            figure.subplots(1, len(trees), squeeze=False)[0], trees.items(), strict=True
        ):
            axes.set_title(name, fontsize=10)
            axes.set_axis_off()
            _draw_node(axes, "", 0, "white")
            for branch in branches:
                start, end = _tree_position(branch.actions[:-1]), _tree_position(branch.actions)
                axes.plot(
                    *zip(start, end, strict=True),
                    color="#9A9A9A" if branch.actions[-1] == "L" else "black",
                    linestyle=(0, (2, 1.2)) if branch.planned else "-",
                    linewidth=2.6 if branch.planned else 1.2,
                    zorder=1,
                )
            for branch in branches:
                colour = "#D55E00" if branch.rewarding else "#56B4E9" if branch.informative else "white"
                _draw_node(axes, branch.actions, branch.state, colour)
        handles = [
            Line2D([], [], color="#9A9A9A", label="left"),
            Line2D([], [], color="black", label="right"),
            Line2D(
                [],
                [],
                color="black",
                linestyle=(0, (2, 1.2)),
                linewidth=2.6,
                label="planned: reward or information in sight",
            ),
            *(
                Line2D([], [], marker="o", ls="", color=colour, markeredgecolor="black", ms=9, label=label)
                for colour, label in (("#D55E00", "rewarding"), ("#56B4E9", "informative"))
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        save_figure(figure, stem)


def _tree_position(actions: str) -> tuple[float, float]:
    """Where a node is drawn: every level halves the distance to its neighbours."""
    across = sum((1 if action == "R" else -1) * 0.5 ** (depth + 1) for depth, action in enumerate(actions))
    return across, -float(len(actions))


def _draw_node(axes: Axes, actions: str, state: int, colour: str) -> None:
    """A circle with the number of the state."""
    x, y = _tree_position(actions)
    axes.plot([x], [y], "o", color=colour, markeredgecolor="black", ms=15, zorder=2)
    axes.text(x, y, f"{state:+d}" if state else "0", ha="center", va="center", fontsize=7, zorder=3)


def save_figure(figure: Figure, stem: Path) -> None:
    """Write a PNG and an SVG."""
    for suffix in (".png", ".svg"):
        write_atomically(stem.with_suffix(suffix), figure_bytes(figure, suffix))


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """The file of a figure, `.png` or `.svg`: the same bytes every time."""
    drawn = io.BytesIO()
    options: dict[str, Any] = {"dpi": 150} if suffix == ".png" else {"metadata": {"Date": None}}
    with rc_context(STYLE):
        figure.savefig(drawn, format=suffix[1:], **options)
    return drawn.getvalue()
