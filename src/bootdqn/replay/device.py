"""A ring of transitions inside a compiled program."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.types import Transition


class Ring(NamedTuple):
    """The last `capacity` transitions, oldest overwritten first."""

    data: Transition
    """Every field [capacity, ...]."""
    added: Array
    """How many transitions were ever added."""


def make_ring(example: Transition, capacity: int) -> Ring:
    """An empty ring for transitions shaped like `example` (arrays, or shapes and dtypes)."""
    return Ring(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example), jnp.int32(0))


def ring_capacity(ring: Ring) -> int:
    """How many transitions fit."""
    return ring.data.reward.shape[0]


def ring_size(ring: Ring) -> Array:
    """How many transitions are there to sample from."""
    return jnp.minimum(ring.added, ring_capacity(ring))


def add(ring: Ring, transition: Transition) -> Ring:
    """The ring with one more transition."""
    index = ring.added % ring_capacity(ring)
    return Ring(jax.tree.map(lambda rows, row: rows.at[index].set(row), ring.data, transition), ring.added + 1)


def add_some(ring: Ring, transitions: Transition, valid: Array) -> Ring:
    """The ring with those of several transitions [S, ...] that are `valid` [S], in their order."""
    # Beyond the capacity there is nothing to write to: rows that do not count are dropped.
    index = jnp.where(valid, (ring.added + jnp.cumsum(valid) - 1) % ring_capacity(ring), ring_capacity(ring))
    data = jax.tree.map(lambda rows, new: rows.at[index].set(new, mode="drop"), ring.data, transitions)
    return Ring(data, ring.added + jnp.sum(valid, dtype=jnp.int32))


def sample(key: Array, ring: Ring, batch_size: int) -> Transition:
    """A batch drawn uniformly with replacement from a ring that is not empty; fields [batch_size, ...]."""
    rows = jax.random.randint(key, (batch_size,), 0, ring_size(ring))
    return jax.tree.map(lambda field: field[rows], ring.data)
