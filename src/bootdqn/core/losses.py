"""Temporal-difference losses of all heads, written for one transition; `jax.vmap` makes batches."""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

LossKind = Literal["squared", "huber"]
LOSS_KINDS: tuple[LossKind, ...] = get_args(LossKind)


def pick(q: Array, action: Array) -> Array:
    """Pick the value of one action per head [K] from values [K, A]; actions are [] or [K].

    A sum over a one-hot selection: XLA compiles it to straight-line code where a gather would be a loop.
    """
    actions = jnp.broadcast_to(action, q.shape[:1])
    return jnp.sum(q * jax.nn.one_hot(actions, q.shape[-1]), axis=-1)


def td_target(
    reward: Array,
    discount: Array,
    next_q: Array,
    next_target_q: Array,
    *,
    double_q: bool,
    ceiling: Array | None = None,
) -> Array:
    """Compute what each head should have predicted [K] (paper, equations 1 and 2).

    Args:
        reward: the reward of the transition [].
        discount: gamma, or 0 at termination [].
        next_q: online values of the next observation [K, A]; they choose the action when `double_q`.
        next_target_q: target-network values of the next observation [K, A]; head k against its own target.
        double_q: choose by the online network and value by the target network; else maximise the target network.
        ceiling: the most that each head takes the next observation to be worth [K]; None for no bound.
    """
    chooser = next_q if double_q else next_target_q
    value = pick(next_target_q, chooser.argmax(axis=-1))
    value = value if ceiling is None else jnp.minimum(value, ceiling)
    return jax.lax.stop_gradient(reward + discount * value)


def shortfall(target_q: Array, action: Array) -> Array:
    """Compute by how much an action falls behind the best per head [K], from values of one observation [K, A]."""
    return jax.lax.stop_gradient(target_q.max(axis=-1) - pick(target_q, action))


def mean_error(error: Array, mask: Array) -> Array:
    """Compute the mean absolute error [] of those heads that learn from a transition, by their weights [K]."""
    return jax.lax.stop_gradient(jnp.sum(mask * jnp.abs(error)) / jnp.maximum(jnp.sum(mask), 1e-9))


def error_loss(error: Array, kind: LossKind) -> Array:
    """Compute half the squared error, or Huber's loss with unit slope beyond 1 (the DQN error clipping)."""
    squared = 0.5 * jnp.square(error)
    if kind == "squared":
        return squared
    return jnp.where(jnp.abs(error) <= 1.0, squared, jnp.abs(error) - 0.5)
