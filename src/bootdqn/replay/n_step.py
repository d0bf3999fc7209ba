"""Returns over several steps: transitions wait in a window until all rewards that count for them are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.types import Transition


class Window(NamedTuple):
    """The last transitions of an episode whose returns are not complete, oldest first."""

    data: Transition
    """The transitions, every field [n, ...], of which the first `size` are there."""
    size: Array
    """How many there are, less than n."""


def make_window(example: Transition, n_steps: int) -> Window:
    """Make an empty window for transitions shaped like `example` (arrays, or shapes and dtypes)."""
    return Window(jax.tree.map(lambda x: jnp.zeros((n_steps, *x.shape), x.dtype), example), jnp.int32(0))


def push(window: Window, transition: Transition, ended: Array) -> tuple[Window, Transition, Array]:
    """Add a transition to a window, and take out those whose returns are complete.

    A transition over several steps has the sum of their discounted rewards, the product of their discounts, and
    the observation after the last of them. It ends early where there is no future, and with its episode.

    Args:
        window: the transitions before, of the same episode.
        transition: the one to add, with its reward as it should be summed.
        ended: whether the episode ended with it, so that nothing follows.

    Returns:
        The window, transitions over up to n steps [n, ...], oldest first, and which of them to keep [n].
    """
    data = jax.tree.map(lambda rows, row: rows.at[window.size].set(row), window.data, transition)
    size, n_steps = window.size + 1, len(data.reward)
    index = jnp.arange(n_steps)
    there = index < size

    def fold(later: tuple[Array, Array], row: tuple[Array, Array, Array]) -> tuple[Any, tuple[Array, Array]]:
        reward, discount, is_there = row
        summed = reward + discount * later[0]
        kept = jnp.where(is_there, summed, later[0]), jnp.where(is_there, discount * later[1], later[1])
        return kept, kept

    nothing = jnp.zeros_like(transition.reward), jnp.ones_like(transition.discount)
    reward, discount = jax.lax.scan(fold, nothing, (data.reward, data.discount, there), reverse=True)[1]
    last = jnp.broadcast_to(transition.next_obs, (n_steps, *transition.next_obs.shape))
    rows = data._replace(reward=reward, discount=discount, next_obs=last)
    is_full = size == n_steps
    complete = jnp.where(ended, there, (index == 0) & is_full)
    data = jax.tree.map(lambda x: jnp.where(is_full, jnp.roll(x, -1, axis=0), x), data)
    return Window(data, jnp.where(ended, 0, size - is_full)), rows, complete
