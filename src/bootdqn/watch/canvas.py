"""A canvas to draw frames on, and the colours that all videos share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from bootdqn.figures import head_colour, is_light

SIZE = 1280, 720
PAPER, WHITE, INK, QUIET, RULE = "#FBFAF7", "#FFFFFF", "#222222", "#6B6862", "#D3CFC6"
"""Background, empty places, text, text of less weight, and lines that part things."""
ACCENT = "#0072B2"
"""What is to be noticed."""

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; the last two are outside."""


def rgb(colour: str) -> NDArray[np.uint8]:
    """Of `#RRGGBB`, the three bytes."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.uint8)


def shade(low: str, high: str, shares: ArrayLike) -> NDArray[np.uint8]:
    """Colours [..., 3] between two: `low` for a share of 0, `high` for 1."""
    part = np.clip(np.asarray(shares, float), 0, 1)[..., None]
    return np.round(rgb(low) * (1 - part) + rgb(high) * part).astype(np.uint8)


def ink_on(colour: NDArray[np.uint8]) -> str:
    """Dark or light, whichever can be read on the three bytes of a background."""
    return INK if is_light(colour / 255) else WHITE


def number(value: float) -> str:
    """With a proper minus, and no more digits than one can read."""
    is_whole = value == round(value) or abs(value) >= 100
    return (f"{value:.0f}" if is_whole and abs(value) < 10**9 else f"{value:.3g}").replace("-", "−")


@cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    # Of the figures, too; it comes with matplotlib.
    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


class Axes(NamedTuple):
    """A box in which numbers have places."""

    box: Box
    x: tuple[float, float]
    """What the left and the right edge stand for."""
    y: tuple[float, float]
    """What the bottom and the top edge stand for."""

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point goes; beyond the edges, to the nearest."""
        left, top, right, bottom = self.box
        across = min(max((x - self.x[0]) / (self.x[1] - self.x[0]), 0), 1)
        up = min(max((y - self.y[0]) / (self.y[1] - self.y[0]), 0), 1)
        return left + across * (right - 1 - left), bottom - 1 - up * (bottom - 1 - top)


class Canvas:
    """A picture in the making."""

    def __init__(self, image: Image.Image | None = None):
        """Empty, or on a picture that is drawn over."""
        self.image = Image.new("RGB", SIZE, PAPER) if image is None else image
        self._draw = ImageDraw.Draw(self.image)

    def copy(self) -> Canvas:
        """Another one with the same picture."""
        return Canvas(self.image.copy())

    def text(
        self,
        at: tuple[float, float],
        text: str,
        size: int = 14,
        *,
        colour: str = INK,
        bold: bool = False,
        anchor: str = "la",
    ) -> float:
        """Write a line, and return how wide it is; `anchor` is Pillow's: `l`, `m` or `r`, then `a`, `m` or `s`."""
        font = _font(size, bold)
        self._draw.text(at, text, fill=colour, font=font, anchor=anchor)
        return font.getlength(text)

    def box(self, box: Sequence[float], *, fill: str | None = None, outline: str | None = None, width: int = 1):
        """A rectangle."""
        left, top, right, bottom = box
        self._draw.rectangle((left, top, right - 1, bottom - 1), fill=fill, outline=outline, width=width)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: int = 1) -> None:
        """Through some points."""
        self._draw.line([*points], fill=colour, width=width, joint="curve")

    def dot(self, at: tuple[float, float], colour: str, radius: float) -> None:
        """A filled circle."""
        self._draw.circle(at, radius, fill=colour)

    def cells(self, box: Box, colours: NDArray[np.uint8]) -> None:
        """A table of colours [rows, columns, 3] that fills a box; `cell_box` says where each is."""
        size = box[2] - box[0], box[3] - box[1]
        self.image.paste(Image.fromarray(colours).resize(size, Image.Resampling.NEAREST), box[:2])

    def picture(self, box: Box, picture: NDArray[np.uint8]) -> Box:
        """A picture [height, width, 3] as large as fits into the middle of a box; returns where it is."""
        height, width = picture.shape[:2]
        scale = min((box[2] - box[0]) / width, (box[3] - box[1]) / height)
        size = round(width * scale), round(height * scale)
        left, top = box[0] + (box[2] - box[0] - size[0]) // 2, box[1] + (box[3] - box[1] - size[1]) // 2
        # Pixels of old games keep their edges; what is made smaller does not lose thin lines.
        how = Image.Resampling.NEAREST if scale > 1.5 else Image.Resampling.BOX if scale < 1 else None
        self.image.paste(Image.fromarray(picture).resize(size, how), (left, top))
        return left, top, left + size[0], top + size[1]

    def frame(self, axes: Axes, *, ticks: Sequence[tuple[float, str]]) -> None:
        """The box of a chart, with labelled lines at some heights."""
        left, _, right, _ = axes.box
        self.box(axes.box, fill=WHITE, outline=RULE)
        for value, label in ticks:
            _, y = axes.place(axes.x[0], value)
            self.line([(left, y), (right - 1, y)], RULE)
            self.text((left - 6, y), label, 12, colour=QUIET, anchor="rm")

    def chip(self, at: tuple[float, float], head: int, size: int = 18) -> None:
        """A square in the colour of a head with its number in it, from its top left corner."""
        x, y = at
        colour = head_colour(head)
        self.box((x, y, x + size, y + size), fill=colour)
        self.text(
            (x + size / 2, y + size / 2),
            str(head),
            size * 2 // 3,
            colour=ink_on(rgb(colour)),
            bold=True,
            anchor="mm",
        )


def cell_box(box: Box, shape: tuple[int, int], row: int, column: int) -> Box:
    """Where a cell of a table of so many rows and columns is that fills `box`."""
    left, top, right, bottom = box
    rows, columns = shape

    def edge(start: int, end: int, index: int, count: int) -> int:
        return start + (index * (end - start) + count // 2) // count

    return (
        edge(left, right, column, columns),
        edge(top, bottom, row, rows),
        edge(left, right, column + 1, columns),
        edge(top, bottom, row + 1, rows),
    )


def grid(count: int, box: Box, ratio: float, label: int) -> list[Box]:
    """So many tiles of the same size in rows, as large as possible for pictures `ratio` wide by 1 high.

    Args:
        count: how many.
        box: to be filled.
        ratio: of width to height.
        label: pixels above every picture that belong to its tile.
    """
    width, height = box[2] - box[0], box[3] - box[1]

    def picture_height(columns: int) -> float:
        rows = -(-count // columns)
        return min(width / columns / ratio, height / rows - label)

    columns = max(range(1, count + 1), key=picture_height)
    shape = -(-count // columns), columns
    return [cell_box(box, shape, *divmod(i, columns)) for i in range(count)]
