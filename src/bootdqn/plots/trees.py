"""Trees of the actions that an agent can plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bootdqn.plots.style import drawing

_LEFT, _RIGHT, _REWARDING, _INFORMATIVE = "#9A9A9A", "black", "#D55E00", "#56B4E9"
_DASHED = 0, (2, 1.2)


class Branch(NamedTuple):
    """One action in a tree of possible action sequences."""

    actions: str
    """All actions from the root up to this one, as letters L and R."""
    state: int
    """The state that the action leads to."""
    rewarding: bool
    informative: bool
    planned: bool
    """Whether the agent can plan this action because of a reward, or information, further down."""


def save_trees(stem: Path, title: str, trees: Mapping[str, Sequence[Branch]]) -> None:
    """Draw trees side by side: left gray, right black, planned dashed, rewarding red, informative blue.

    Args:
        stem: path without suffix; a PNG and an SVG are written.
        title: title of the figure.
        trees: all branches of every tree, by the tree's title.
    """
    with drawing(stem, title, (0.4 + 3.1 * len(trees), 3.6)) as figure:
        all_axes = figure.subplots(1, len(trees), squeeze=False)[0]
        for axes, (name, branches) in zip(all_axes, trees.items(), strict=True):
            axes.set_title(name, fontsize=10)
            axes.set_axis_off()
            _draw_node(axes, "", 0, "white")
            for branch in branches:
                start, end = _position(branch.actions[:-1]), _position(branch.actions)
                axes.plot(
                    *zip(start, end, strict=True),
                    color=_LEFT if branch.actions[-1] == "L" else _RIGHT,
                    linestyle=_DASHED if branch.planned else "-",
                    linewidth=2.6 if branch.planned else 1.2,
                    zorder=1,
                )
            for branch in branches:
                colour = _REWARDING if branch.rewarding else _INFORMATIVE if branch.informative else "white"
                _draw_node(axes, branch.actions, branch.state, colour)
        planned = "planned: reward or information in sight"
        handles = [
            Line2D([], [], color=_LEFT, label="left"),
            Line2D([], [], color=_RIGHT, label="right"),
            Line2D([], [], color="black", linestyle=_DASHED, linewidth=2.6, label=planned),
            *(
                Line2D([], [], marker="o", ls="", color=colour, markeredgecolor="black", ms=9, label=label)
                for colour, label in ((_REWARDING, "rewarding"), (_INFORMATIVE, "informative"))
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)


def _position(actions: str) -> tuple[float, float]:
    """Coordinates of the node that a sequence of actions leads to; the spacing halves with every level."""
    across = sum((1 if action == "R" else -1) * 0.5 ** (depth + 1) for depth, action in enumerate(actions))
    return across, -float(len(actions))


def _draw_node(axes: Axes, actions: str, state: int, colour: str) -> None:
    """Draw a circle with the number of the state in it."""
    x, y = _position(actions)
    axes.plot([x], [y], "o", color=colour, markeredgecolor="black", ms=15, zorder=2)
    axes.text(x, y, f"{state:+d}" if state else "0", ha="center", va="center", fontsize=7, zorder=3)
