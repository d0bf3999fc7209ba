"""The figure of an exploration X-ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bootdqn.analysis.xray import NO_HEAD, States, Xray, read_xray
from bootdqn.plots.style import STYLE, head_colour, is_light, running_mean, save_figure

_NEUTRAL = "#0072B2"
"""The colour of episodes in which no single head was followed."""
_UNSEEN = "#E6E6E6"
"""The colour of states that were never visited."""
_TIME_BINS = 40
"""The largest number of bins on a time axis."""
_MAX_NUMBERED = 12
"""The largest number of heads for which each gets its own tick."""


def _colour(head: int) -> str:
    """The colour of a head, or of `NO_HEAD`."""
    return _NEUTRAL if head == NO_HEAD else head_colour(head)


def save_xray(run: Path) -> None:
    """Draw `exploration.png` and `.svg` for the first seed of a run directory, if it has data to show."""
    xray = read_xray(run)
    if xray is not None:
        save_figure(xray_figure(xray), run / "exploration")


def xray_figure(xray: Xray) -> Figure:
    """A figure of first visits, coverage over time, disagreement of the heads, and their shares of the data."""
    with rc_context(STYLE):
        figure = Figure(figsize=(10.0, 6.4), layout="constrained")
        (first, growth), (disagreement, shares) = figure.subplots(2, 2, width_ratios=(3, 2))
        if xray.states is None:
            _draw_best_episodes(first, xray)
            _draw_returns_by_head(growth, xray)
            _draw_spread(disagreement, xray)
        else:
            _draw_first_visits(first, xray, xray.states)
            _draw_coverage(growth, xray, xray.states)
            _draw_disagreement(disagreement, xray.states)
        _draw_shares(shares, xray)
        title = f"Exploration X-ray: {xray.title}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)  # names may have dollars
    return figure


def _draw_first_visits(axes: Axes, xray: Xray, states: States) -> None:
    """Draw the episode of every state's first visit, in the colour of the head that made it."""
    seen: list[int] = np.flatnonzero(states.visits).tolist()
    colours = [_colour(int(head)) for head in states.first_head]
    by = "colour and number: the head" if xray.committed and xray.num_heads > 1 else ""
    if not states.is_grid:
        axes.bar(seen, states.first_episode[seen], color=[colours[state] for state in seen], width=0.9)
        for state in seen if by and len(states.visits) <= 60 else ():
            number, episode = states.first_head[state], states.first_episode[state]
            axes.text(state, float(episode), str(number), ha="center", va="bottom", fontsize=6)
        axes.set_xlabel("state")
        axes.set_ylabel("episode of first visit")
        axes.set_xlim(-0.7, len(states.visits) - 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        picture = np.array([to_rgb(_UNSEEN if not states.visits[i] else colours[i]) for i in range(len(colours))])
        picture[~states.reachable] = 1.0
        axes.imshow(picture.reshape(*states.shape, 3))
        for state in seen if by and max(states.shape) <= 16 else ():
            row, column = np.unravel_index(state, states.shape)
            axes.text(
                float(column),
                float(row),
                str(states.first_head[state]),
                ha="center",
                va="center",
                fontsize=6,
                color="black" if is_light(to_rgb(colours[state])) else "white",
            )
        _label_grid(axes)
    axes.set_title(f"First visits{'; ' + by if by else ''}", loc="left", fontsize=10)


def _draw_coverage(axes: Axes, xray: Xray, states: States) -> None:
    """Draw the number of states visited so far over episodes."""
    discoveries, reachable = states.discoveries, int(states.reachable.sum())
    x = [0, *(discovery.episode for discovery in discoveries), len(xray.returns)]
    y = [0, *np.cumsum([discovery.states for discovery in discoveries])]
    axes.step(x, [*y, y[-1]], where="post", color="#555555", linewidth=1.2)
    axes.scatter(x[1:-1], y[1:], s=18, color=[_colour(discovery.head) for discovery in discoveries], zorder=3)
    axes.axhline(reachable, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, reachable * 1.08)
    best = xray.best_episodes[-1]
    axes.axvline(best.episode, color="#D55E00", linewidth=1.0)
    axes.annotate(
        f" best return {best.episode_return:.3g}",
        (best.episode, 0.04 * reachable),
        fontsize=8,
        color="#B04A00",
        ha="left" if best.episode < 0.6 * len(xray.returns) else "right",
    )
    axes.set_xlabel("episode")
    axes.set_ylabel("states visited so far")
    axes.set_title(f"Coverage: {y[-1]} of {reachable} states", loc="left", fontsize=10)


def _draw_disagreement(axes: Axes, states: States) -> None:
    """Draw the entropy of the heads' vote in every state, and the number of visits to states in a row."""
    if not states.is_grid:
        layers = {"visits": _relative(np.log1p(states.visits)), "std of Q": _relative(states.spread)}
        layers["vote entropy"] = _relative(states.entropy)
        axes.imshow(np.stack([*layers.values()]), aspect="auto", cmap="viridis", vmin=0, vmax=1)
        tops = (float(values.max()) + 0.0 for values in (states.visits, states.spread, states.entropy))
        labels = [f"{name}\n(to {top:,.4g})" for name, top in zip(layers, tops, strict=True)]
        axes.set_yticks(range(len(layers)), labels=labels, fontsize=8)
        axes.set_xlabel("state")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title("Visits and disagreement by state; bright is high", loc="left", fontsize=10)
    else:
        grid = np.where(states.reachable, states.entropy, np.nan).reshape(states.shape)
        top = max(float(states.entropy[states.reachable].max()), 1e-9)
        image = axes.imshow(grid, cmap="viridis", vmin=0, vmax=top)
        _figure_of(axes).colorbar(image, ax=axes, label="vote entropy, nats")
        axes.set_title("Disagreement of the heads at the end", loc="left", fontsize=10)
        _label_grid(axes)
    axes.grid(visible=False)


def _draw_shares(axes: Axes, xray: Xray) -> None:
    """Draw every head's share of the steps, and of the states or best returns that it found."""
    axes.set_title("Steps and discoveries by head", loc="left", fontsize=10)
    if not xray.committed or xray.num_heads == 1:
        text = "one head" if xray.num_heads == 1 else "heads did not act alone"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color="#555555")
        axes.set_axis_off()
        return
    heads = np.arange(xray.num_heads)
    found = np.zeros(xray.num_heads)
    if xray.states is None:
        what = "new best returns"
        np.add.at(found, [best.head for best in xray.best_episodes], 1)
    else:
        what = "states found first"
        discoveries = xray.states.discoveries
        np.add.at(found, [each.head for each in discoveries], [each.states for each in discoveries])
    colours = [_colour(head) for head in range(xray.num_heads)]
    axes.bar(heads - 0.2, 100 * xray.shares, width=0.4, color="#BBBBBB", label="steps made")
    axes.bar(heads + 0.2, 100 * found / max(found.sum(), 1), width=0.4, color=colours, label=what)
    for head in heads if xray.num_heads <= _MAX_NUMBERED else ():
        axes.text(
            head + 0.2,
            100 * found[head] / max(found.sum(), 1),
            f"{found[head]:.0f}",
            ha="center",
            va="bottom",
            fontsize=7,
        )
    if xray.num_heads <= _MAX_NUMBERED:
        axes.set_xticks(heads)
    axes.set_xlabel("head")
    axes.set_ylabel("share, %")
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend
    labels = ["steps (gray)", f"{what} (colour, counted)"]
    axes.legend([axes.containers[0], axes.containers[1]], labels, loc="upper right", fontsize=8)


def _draw_best_episodes(axes: Axes, xray: Xray) -> None:
    """Draw the returns of all episodes, and mark those that were higher than any before."""
    episodes = np.arange(1, len(xray.returns) + 1)
    axes.plot(episodes, xray.returns, ".", color="#BBBBBB", markersize=2)
    axes.step(
        [*(best.episode for best in xray.best_episodes), len(xray.returns)],
        [*(best.episode_return for best in xray.best_episodes), xray.best_episodes[-1].episode_return],
        where="post",
        color="#555555",
        linewidth=1.0,
    )
    for best in xray.best_episodes:
        axes.plot(best.episode, best.episode_return, "o", color=_colour(best.head), markersize=5)
        if best.head != NO_HEAD and xray.num_heads > 1:
            axes.annotate(
                str(best.head),
                (best.episode, best.episode_return),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=7,
            )
    axes.set_xlabel("episode")
    axes.set_ylabel("return")
    by = "; number: the head" if xray.committed and xray.num_heads > 1 else ""
    axes.set_title(f"New best returns among all episodes{by}", loc="left", fontsize=10)


def _draw_returns_by_head(axes: Axes, xray: Xray) -> None:
    """Draw the mean return of each head's episodes over time."""
    if not xray.committed or xray.num_heads == 1:
        axes.plot(np.arange(1, len(xray.returns) + 1), running_mean(xray.returns), color=_NEUTRAL, linewidth=1.2)
        axes.set_xlabel("episode")
        axes.set_ylabel("return, mean of 10 episodes")
        axes.set_title("Returns", loc="left", fontsize=10)
        return
    count = len(xray.returns)
    bins = min(_TIME_BINS, max(1, count // (2 * xray.num_heads)))
    at = np.arange(count) * bins // count
    sums, counts = np.zeros((2, xray.num_heads, bins))
    np.add.at(sums, (xray.heads, at), xray.returns)
    np.add.at(counts, (xray.heads, at), 1)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    image = axes.imshow(means, aspect="auto", cmap="viridis", extent=(0, count, xray.num_heads - 0.5, -0.5))
    _figure_of(axes).colorbar(image, ax=axes, label="mean return")
    axes.set_xlabel("episode")
    axes.set_ylabel("head")
    axes.grid(visible=False)
    if xray.num_heads <= _MAX_NUMBERED:
        axes.set_yticks(range(xray.num_heads))
    axes.set_title("Mean return of each head over time", loc="left", fontsize=10)


def _draw_spread(axes: Axes, xray: Xray) -> None:
    """Draw the standard deviation of Q over heads in the updates of every episode."""
    learned = np.flatnonzero(np.isfinite(xray.spread))
    if len(learned):
        axes.plot(learned + 1, running_mean(xray.spread[learned]), color=_NEUTRAL, linewidth=1.2)
    axes.set_xlabel("episode")
    axes.set_ylabel("std of Q over heads")
    axes.set_title("Disagreement of the heads in updates", loc="left", fontsize=10)


def _relative(values: NDArray[Any]) -> NDArray[np.float64]:
    top = float(values.max())
    return values / top if top > 0 else np.zeros(len(values))


def _label_grid(axes: Axes) -> None:
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    axes.grid(visible=False)


def _figure_of(axes: Axes) -> Figure:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure
