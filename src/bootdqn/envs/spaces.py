"""Turns observations of any space of fixed size into rows for the replay memory and the network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bootdqn.errors import UserError, require
from bootdqn.types import Encoding

Layout = dict[str, Any]
"""The part of a space that matters here, as JSON, which is stored in model files."""
_LARGEST_BOUND = 1e6
"""Bounds beyond this stand for none: spaces write the largest float where they mean infinity."""
_SUPPORTED = "Box, Discrete, MultiBinary, MultiDiscrete, and Tuple and Dict of these"


def space_layout(space: spaces.Space[Any]) -> Layout:
    """Return the layout of a space; raise `UserError` if it is of a kind that has no fixed size."""
    if isinstance(space, spaces.Box):
        is_bytes = space.dtype == np.uint8 and bool(space.high.max(initial=0) == 255)
        return {"box": list(space.shape), "bytes": is_bytes}
    if isinstance(space, spaces.Discrete):
        return {"discrete": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiBinary):
        return {"box": list(space.shape), "bytes": False}
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = (array.ravel().tolist() for array in (space.nvec, space.start))
        return {"multi_discrete": sizes, "start": starts, "shape": list(space.shape)}
    if isinstance(space, spaces.Tuple):
        return {"tuple": [space_layout(part) for part in space.spaces]}
    if isinstance(space, spaces.Dict):
        return {"dict": {name: space_layout(part) for name, part in space.spaces.items()}}
    raise UserError(f"observations of {type(space).__name__} are not supported; supported are {_SUPPORTED}")


def action_count(space: spaces.Space[Any]) -> tuple[int, int]:
    """Return how many actions a space has, and the number of the first one."""
    require(
        isinstance(space, spaces.Discrete),
        f"actions of {type(space).__name__} are not supported; supported is Discrete: a choice of one of several",
    )
    assert isinstance(space, spaces.Discrete)
    return int(space.n), int(space.start)


class Observations:
    """Turns observations of one layout into rows of one array.

    A single Box keeps its numbers (bytes stay bytes until the network reads them), a single Discrete becomes its
    index, and anything composite becomes a vector with a one-hot part for every choice. Pictures, a layout that no
    space has by itself, are bytes that keep their shape.
    """

    def __init__(self, layout: Layout, encoding: Encoding | None = None, space: spaces.Space[Any] | None = None):
        """Prepare for a layout.

        Args:
            layout: the layout of the observation space.
            encoding: the encoding of rows, if not the one that suits the layout.
            space: the observation space, where its bounds matter.
        """
        self.layout = layout
        if "discrete" in layout:
            self.encoding = Encoding("one_hot", layout["discrete"])
            self.shape: tuple[int, ...] = ()
            self.dtype = np.dtype(np.int32)
        elif "pictures" in layout:
            self.shape = tuple(layout["pictures"])
            self.encoding = Encoding("pictures", math.prod(self.shape))
            self.dtype = np.dtype(np.uint8)
        else:
            is_bytes = layout.get("bytes", False)
            size = _width(layout)
            require(size > 0, "observations must not be empty")
            self.encoding = Encoding("bytes" if is_bytes else "vector", size)
            self.shape = (size,)
            self.dtype = np.dtype(np.uint8 if is_bytes else np.float32)
        self.encoding = encoding or self.encoding
        none = np.full(self.encoding.size, np.inf, np.float32)
        self.bounds = (-none, none)
        """The least and the largest value of every number in a row, [size] each; infinite where there is none."""
        if space is not None and self.encoding.kind == "vector":
            low, high = np.concatenate(_bounds(space), axis=1)
            self.bounds = (low, high)

    def rows(self, batch: Any) -> NDArray[Any]:
        """Turn a batch of N observations, as vector environments return it, into rows [N, *shape]."""
        if "discrete" in self.layout:
            return (np.asarray(batch, np.int64) - self.layout["start"]).astype(np.int32)
        if "pictures" in self.layout:
            pictures = np.asarray(batch)
            require(pictures.dtype == np.uint8, f"expected pictures of bytes, got {pictures.dtype}")
            return pictures.copy()
        parts = _parts(self.layout, batch)
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return np.array(flat, self.dtype)  # a copy, as environments may reuse their buffers

    def row(self, obs: Any) -> NDArray[Any]:
        """Turn one observation into a row [*shape]."""
        return self.rows(_batch_of_one(self.layout, obs))[0]

    def is_batch(self, obs: Any) -> bool:
        """Return whether this is a batch of observations or a single one; raise `UserError` if it is neither."""
        sizes = set(_batch_sizes(self.layout, obs))
        require(
            len(sizes) == 1, f"expected parts of one observation, or of a batch of them, got batches of {sizes}"
        )
        return sizes != {None}


def _batch_sizes(layout: Layout, obs: Any) -> list[int | None]:
    """Return how many observations every leaf holds, or None for a leaf that is not in a batch."""
    if "tuple" in layout:
        parts = layout["tuple"]
        fits = isinstance(obs, tuple | list) and len(obs) == len(parts)
        require(fits, f"expected a tuple of {len(parts)}, got {obs!r}")
        return [size for part, sub in zip(parts, obs, strict=True) for size in _batch_sizes(part, sub)]
    if "dict" in layout:
        fits = isinstance(obs, Mapping) and layout["dict"].keys() <= obs.keys()
        require(fits, f"expected a dict of {', '.join(layout['dict'])}, got {obs!r}")
        return [size for name, part in layout["dict"].items() for size in _batch_sizes(part, obs[name])]
    expected = tuple(next((layout[key] for key in ("box", "pictures", "shape") if key in layout), ()))
    try:
        shape = np.shape(obs)
    except ValueError:
        raise UserError(f"expected an observation of shape {expected}, got {obs!r}") from None
    require(
        shape == expected or (len(shape) == len(expected) + 1 and shape[1:] == expected),
        f"expected an observation of shape {expected}, or a batch of them, got shape {shape}",
    )
    return [None if shape == expected else shape[0]]


def _width(layout: Layout) -> int:
    """Return how many numbers a row has."""
    if "box" in layout:
        return math.prod(layout["box"])
    if "discrete" in layout:
        return layout["discrete"]
    if "multi_discrete" in layout:
        return sum(layout["multi_discrete"])
    return sum(_width(part) for part in _children(layout))


def _bounds(space: spaces.Space[Any]) -> list[NDArray[np.float32]]:
    """Return the bounds of the leaves of a space, each [2, width]; infinite ones where numbers are too large."""
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _bounds(part)]
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _bounds(part)]
    if isinstance(space, spaces.Box):
        bounds = np.stack([space.low.ravel(), space.high.ravel()]).astype(np.float32)
        is_bounded = (np.abs(bounds) < _LARGEST_BOUND).all(axis=0) & (space.dtype != np.uint8)
        return [np.where(is_bounded, bounds, np.array([[-np.inf], [np.inf]], np.float32))]
    # Choices are one-hot, and bits are bits.
    return [np.tile(np.array([[-1.0], [1.0]], np.float32), _width(space_layout(space)))]


def _children(layout: Layout) -> Sequence[Layout]:
    return layout["tuple"] if "tuple" in layout else list(layout["dict"].values())


def _parts(layout: Layout, batch: Any) -> list[NDArray[Any]]:
    """Return the leaves of a batch, each [N, width]."""
    if "box" in layout:
        array = np.asarray(batch)
        return [array.reshape(len(array), math.prod(layout["box"]))]
    if "discrete" in layout:
        return [_one_hot(np.asarray(batch, np.int64) - layout["start"], layout["discrete"])]
    if "multi_discrete" in layout:
        columns = np.asarray(batch).reshape(len(batch), len(layout["start"])) - np.asarray(layout["start"])
        return [_one_hot(column, n) for column, n in zip(columns.T, layout["multi_discrete"], strict=True)]
    if "tuple" in layout:
        return [leaf for part, sub in zip(layout["tuple"], batch, strict=True) for leaf in _parts(part, sub)]
    return [leaf for name, part in layout["dict"].items() for leaf in _parts(part, batch[name])]


def _batch_of_one(layout: Layout, obs: Any) -> Any:
    if "tuple" in layout:
        return tuple(_batch_of_one(part, sub) for part, sub in zip(layout["tuple"], obs, strict=True))
    if "dict" in layout:
        return {name: _batch_of_one(part, obs[name]) for name, part in layout["dict"].items()}
    return np.asarray(obs)[None]


def _one_hot(index: NDArray[Any], size: int) -> NDArray[np.float32]:
    return (index[:, None] == np.arange(size)).astype(np.float32)
