"""Which transitions are replayed how often: priorities, and sums of them from which rows are drawn.

Priorities are the leaves of a tree whose nodes hold the sums of 16 below them. Drawing a row goes down the tree,
changing a priority goes up: that is five levels for 100,000 transitions, and five for a million.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

_WIDTH = 16
"""Children of a node."""
_LEAST = 1e-6
"""Added to errors, so that no transition is never replayed."""


class Priorities(NamedTuple):
    """How often each row of a replay is drawn, in proportion to the others."""

    levels: tuple[Array, ...]
    """Priorities of rows, then sums of 16 of each level before, each [a multiple of 16] with zeros at its end."""
    largest: Array
    """The largest priority that a row ever had: that of a new one, whose error is not known."""


def make_priorities(capacity: int) -> Priorities:
    """Make priorities of so many rows, all 0: none can be drawn before it is set."""
    sizes = [_WIDTH * math.ceil(capacity / _WIDTH)]
    while sizes[-1] > _WIDTH:
        sizes.append(_WIDTH * math.ceil(sizes[-1] // _WIDTH / _WIDTH))
    return Priorities(tuple(jnp.zeros(size) for size in sizes), jnp.float32(1))


def with_new(priorities: Priorities, rows: Array, usable: Array) -> Priorities:
    """Give rows [N] the largest priority, or 0 where they are not `usable` [N]; rows beyond all are left out."""
    return _with(priorities, rows, jnp.where(usable, priorities.largest, 0))


def with_errors(priorities: Priorities, rows: Array, errors: Array, exponent: float) -> Priorities:
    """Give rows [N] the priorities of their absolute errors [N]; rows that are equal have equal errors."""
    values = (errors + _LEAST) ** exponent
    changed = _with(priorities, rows, values)
    return changed._replace(largest=jnp.maximum(priorities.largest, values.max()))


def draw_rows(key: Array, priorities: Priorities, num_rows: int) -> Array:
    """Draw rows [N] with replacement, each in proportion to its priority, from priorities that are not all 0.

    One row is drawn from each of N equal parts of the sum: batches differ less than by N independent draws.
    """
    *below, top = priorities.levels
    parts = (jnp.arange(num_rows) + jax.random.uniform(key, (num_rows,))) / num_rows
    node, rest = _child(jnp.broadcast_to(top, (num_rows, len(top))), parts * top.sum())
    for level in reversed(below):
        child, rest = _child(level.reshape(-1, _WIDTH)[node], rest)
        node = node * _WIDTH + child
    return node


def importance_weights(priorities: Priorities, rows: Array, exponent: float) -> Array:
    """Compute the weights [N] that make up for rows [N] being drawn more often than others, at most 1 each."""
    found = priorities.levels[0][rows]
    return (found.min() / found) ** exponent


def _with(priorities: Priorities, rows: Array, values: Array) -> Priorities:
    levels = []
    for level in priorities.levels:
        if levels:
            rows = jnp.where(rows < len(levels[-1]), rows // _WIDTH, len(level))
            children = levels[-1].reshape(-1, _WIDTH)
            values = children.at[rows].get(mode="clip").sum(axis=1)
        levels.append(level.at[rows].set(values, mode="drop"))
    return priorities._replace(levels=tuple(levels))


def _child(weights: Array, target: Array) -> tuple[Array, Array]:
    """Find the child [N] in whose part of the sum of `weights` [N, C] a target [N] lies, and where in that part.

    Rounding may put a target at the end of all parts: then it is the last child that has one.
    """
    size = weights.shape[1]
    ends = weights @ jnp.triu(jnp.ones((size, size)))  # faster than a cumulative sum
    index = jnp.sum(ends <= target[:, None], axis=1)
    last = size - 1 - jnp.argmax(weights[:, ::-1] > 0, axis=1)
    index = jnp.minimum(index, last)
    begin = jnp.take_along_axis(ends - weights, index[:, None], axis=1)[:, 0]
    return index, jnp.maximum(target - begin, 0)
