"""A canvas for the frames of videos, and the colours that all videos share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from bootdqn.plots.style import head_colour, is_light

SIZE = 1280, 720
"""Width and height of a video in pixels."""
PAPER, WHITE, INK, QUIET, RULE = "#FBFAF7", "#FFFFFF", "#222222", "#6B6862", "#D3CFC6"
"""Colours of the background, empty areas, text, secondary text, and separating lines."""
ACCENT = "#0072B2"
"""The colour of highlights."""

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; right and bottom are exclusive."""


def rgb(colour: str) -> NDArray[np.uint8]:
    """The three bytes of a colour `#RRGGBB`."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.uint8)


def shade(low: str, high: str, shares: ArrayLike) -> NDArray[np.uint8]:
    """Colours [..., 3] interpolated between `low` for a share of 0 and `high` for 1."""
    part = np.clip(np.asarray(shares, float), 0, 1)[..., None]
    return np.round(rgb(low) * (1 - part) + rgb(high) * part).astype(np.uint8)


def ink_on(colour: NDArray[np.uint8]) -> str:
    """The colour of text that is readable on a background, given as three bytes."""
    return INK if is_light(colour / 255) else WHITE


def number(value: float) -> str:
    """A number with few digits and a typographic minus sign."""
    is_whole = value == round(value) or abs(value) >= 100
    return (f"{value:.0f}" if is_whole and abs(value) < 10**9 else f"{value:.3g}").replace("-", "−")


@cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    # The font of the figures, which comes with matplotlib.
    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


class Axes(NamedTuple):
    """A box with coordinates, to draw a chart in."""

    box: Box
    x: tuple[float, float]
    """The values of x at the left and the right edge."""
    y: tuple[float, float]
    """The values of y at the bottom and the top edge."""

    def place(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a point; points outside of the box move to its edge."""
        left, top, right, bottom = self.box
        across = min(max((x - self.x[0]) / (self.x[1] - self.x[0]), 0), 1)
        up = min(max((y - self.y[0]) / (self.y[1] - self.y[0]), 0), 1)
        return left + across * (right - 1 - left), bottom - 1 - up * (bottom - 1 - top)


class Canvas:
    """A frame that is being drawn."""

    def __init__(self, image: Image.Image | None = None):
        """Start with an empty frame, or draw over an image."""
        self.image = Image.new("RGB", SIZE, PAPER) if image is None else image
        self._draw = ImageDraw.Draw(self.image)

    def copy(self) -> Canvas:
        """A copy that can be drawn on independently."""
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
        """Write a line of text, and return its width; `anchor` is as in Pillow, such as `la` for left and top."""
        font = _font(size, bold)
        self._draw.text(at, text, fill=colour, font=font, anchor=anchor)
        return font.getlength(text)

    def box(self, box: Sequence[float], *, fill: str | None = None, outline: str | None = None, width: int = 1):
        """Draw a rectangle."""
        left, top, right, bottom = box
        self._draw.rectangle((left, top, right - 1, bottom - 1), fill=fill, outline=outline, width=width)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: int = 1) -> None:
        """Draw a line through some points."""
        self._draw.line([*points], fill=colour, width=width, joint="curve")

    def dot(self, at: tuple[float, float], colour: str, radius: float) -> None:
        """Draw a filled circle."""
        self._draw.circle(at, radius, fill=colour)

    def cells(self, box: Box, colours: NDArray[np.uint8]) -> None:
        """Fill a box with a table of colours [rows, columns, 3]; `cell_box` gives the place of each cell."""
        size = box[2] - box[0], box[3] - box[1]
        self.image.paste(Image.fromarray(colours).resize(size, Image.Resampling.NEAREST), box[:2])

    def picture(self, box: Box, picture: NDArray[np.uint8]) -> Box:
        """Draw a picture [height, width, 3] as large as possible in the middle of a box, and return its place."""
        height, width = picture.shape[:2]
        scale = min((box[2] - box[0]) / width, (box[3] - box[1]) / height)
        size = round(width * scale), round(height * scale)
        left, top = box[0] + (box[2] - box[0] - size[0]) // 2, box[1] + (box[3] - box[1] - size[1]) // 2
        # Enlarged pixels keep their sharp edges; reduced pictures do not lose thin lines.
        how = Image.Resampling.NEAREST if scale > 1.5 else Image.Resampling.BOX if scale < 1 else None
        self.image.paste(Image.fromarray(picture).resize(size, how), (left, top))
        return left, top, left + size[0], top + size[1]

    def frame(self, axes: Axes, *, ticks: Sequence[tuple[float, str]]) -> None:
        """Draw the frame of a chart, with labelled horizontal lines."""
        left, _, right, _ = axes.box
        self.box(axes.box, fill=WHITE, outline=RULE)
        for value, label in ticks:
            _, y = axes.place(axes.x[0], value)
            self.line([(left, y), (right - 1, y)], RULE)
            self.text((left - 6, y), label, 12, colour=QUIET, anchor="rm")

    def chip(self, at: tuple[float, float], head: int, size: int = 18) -> None:
        """Draw a square in the colour of a head with its index in it; `at` is the top left corner."""
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
    """The place of a cell in a table with `shape` rows and columns that fills `box`."""
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
    """Split a box into tiles of equal size, arranged so that the pictures in them are as large as possible.

    Args:
        count: number of tiles.
        box: the box to fill.
        ratio: width of a picture divided by its height.
        label: height in pixels of the label above every picture, which is part of the tile.
    """
    width, height = box[2] - box[0], box[3] - box[1]

    def picture_height(columns: int) -> float:
        rows = -(-count // columns)
        return min(width / columns / ratio, height / rows - label)

    columns = max(range(1, count + 1), key=picture_height)
    shape = -(-count // columns), columns
    return [cell_box(box, shape, *divmod(i, columns)) for i in range(count)]
