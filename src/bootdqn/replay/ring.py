"""A ring of transitions that lives inside a compiled program."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.types import Transition


class Ring(NamedTuple):
    """The last `capacity` transitions, oldest overwritten first."""

    data: Transition
    """The transitions, every field [capacity, ...]."""
    added: Array
    """How many transitions were ever added."""


def make_ring(example: Transition, capacity: int) -> Ring:
    """Make an empty ring for transitions shaped like `example` (arrays, or shapes and dtypes)."""
    return Ring(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example), jnp.int32(0))


def ring_capacity(ring: Ring) -> int:
    """Return how many transitions fit into the ring."""
    return ring.data.reward.shape[0]


def ring_size(ring: Ring) -> Array:
    """Compute how many transitions there are to sample from."""
    return jnp.minimum(ring.added, ring_capacity(ring))


def add(ring: Ring, transition: Transition) -> Ring:
    """Add one transition."""
    index = ring.added % ring_capacity(ring)
    return Ring(jax.tree.map(lambda rows, row: rows.at[index].set(row), ring.data, transition), ring.added + 1)


def new_rows(ring: Ring, valid: Array) -> Array:
    """Return the rows [S] of those of several transitions that are added next; beyond the last if not `valid`."""
    return jnp.where(valid, (ring.added + jnp.cumsum(valid) - 1) % ring_capacity(ring), ring_capacity(ring))


def add_some(ring: Ring, transitions: Transition, valid: Array) -> Ring:
    """Add those of several transitions [S, ...] that are `valid` [S], in their order."""
    # Beyond the capacity there is nothing to write to: rows that do not count are dropped.
    index = new_rows(ring, valid)
    data = jax.tree.map(lambda rows, new: rows.at[index].set(new, mode="drop"), ring.data, transitions)
    return Ring(data, ring.added + jnp.sum(valid, dtype=jnp.int32))


def sample(key: Array, ring: Ring, batch_size: int) -> Transition:
    """Draw a batch [batch_size, ...] uniformly with replacement from a ring that is not empty."""
    return rows_of(ring, jax.random.randint(key, (batch_size,), 0, ring_size(ring)))


def rows_of(ring: Ring, rows: Array) -> Transition:
    """Gather the transitions of some rows [N]."""
    return jax.tree.map(lambda field: field[rows], ring.data)
