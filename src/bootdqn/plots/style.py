"""The common look of all figures: colours, markers, smoothing, and how a figure is made and saved.

The colours are also used outside of figures, in videos and on the report page. This module therefore imports
matplotlib only when something is drawn.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bootdqn.runs.directory import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which colour-blind readers can tell apart, with a gray and a brown added.
COLOURS = ("#D55E00", "#000000", "#7F7F7F")
"""Colours of lines that do not belong to an agent."""
AGENT_COLOURS: dict[str, str] = {
    "boot": "#0072B2",
    "boot+": "#56B4E9",
    "thompson": "#E69F00",
    "ensemble": "#009E73",
    "dqn": "#CC79A7",
    "boot-prior": "#000000",
    "psrl": "#D55E00",
    "rlsvi": "#E69F00",
    "ucrl2": "#009E73",
    "ucbvi": "#56B4E9",
    "epsilon-greedy": "#000000",
    "q-learning": "#7F7F7F",
    "optimistic-q": "#8C510A",
}
"""The colour of every agent; two agents share one only if no figure shows them together."""
HEAD_COLOURS = (
    *("#332288", "#88CCEE", "#44AA99", "#117733", "#999933"),
    *("#DDCC77", "#CC6677", "#882255", "#AA4499", "#000000"),
)
"""Colours of the heads by index, Paul Tol's muted palette and black; they repeat after ten heads."""
STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "bootdqn",
}
"""Settings of matplotlib under which every figure is drawn."""
MARKERS = "osD^vP"
WINDOW = 10
"""Number of episodes over which learning curves are smoothed."""
SMALL = 7
"""Font size of footnotes."""
LETTERS_PER_INCH = 19
"""How many letters of size `SMALL` fit into an inch, approximately."""


def head_colour(head: int) -> str:
    """The colour that a head has in all figures and videos."""
    return HEAD_COLOURS[head % len(HEAD_COLOURS)]


def is_light(colour: ArrayLike) -> bool:
    """Whether a background, given as red, green and blue from 0 to 1, needs dark text."""
    return bool(np.dot(colour, (0.299, 0.587, 0.114)) > 0.55)


def running_mean(curve: ArrayLike) -> NDArray[np.floating]:
    """Mean of each value and the up to `WINDOW` - 1 values before it, ignoring NaN."""
    values = np.asarray(curve)
    padded = np.concatenate([np.full(WINDOW - 1, np.nan), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)
    known = ~np.isnan(windows)
    total = np.where(known, windows, 0.0).sum(axis=1)
    return np.divide(total, known.sum(axis=1), out=np.full(len(values), np.nan), where=known.any(axis=1))


@contextmanager
def drawing(stem: Path, title: str, size: tuple[float, float], footer: Sequence[str] = ()) -> Iterator[Figure]:
    """A new figure to draw on, which is saved as PNG and SVG when the `with` block ends.

    Args:
        stem: path of the files without their suffix.
        title: title of the figure, or an empty string for none.
        size: width and height in inches.
        footer: footnotes in small print, each wrapped to the width of the figure.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        if footer:
            width = int(LETTERS_PER_INCH * (size[0] - 0.2))
            text = "\n".join(part for line in footer for part in textwrap.wrap(line, width))
            figure.supxlabel(text, x=0.01, ha="left", fontsize=SMALL, color="#404040")
        save_figure(figure, stem)


def save_figure(figure: Figure, stem: Path) -> None:
    """Write a figure as PNG and as SVG; `stem` is the path without suffix."""
    for suffix in (".png", ".svg"):
        write_atomically(stem.with_suffix(suffix), figure_bytes(figure, suffix))


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """The contents of a `.png` or `.svg` file of a figure; the same figure always gives the same bytes."""
    from matplotlib import rc_context

    drawn = io.BytesIO()
    options: dict[str, Any] = {"dpi": 150} if suffix == ".png" else {"metadata": {"Date": None}}
    with rc_context(STYLE):
        figure.savefig(drawn, format=suffix[1:], **options)
    return drawn.getvalue()
