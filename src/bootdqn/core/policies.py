"""Policies that choose actions by their values. Ties are always broken at random."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.types import Belief


def random_argmax(key: Array, values: Array) -> Array:
    """Find the index of the largest of `values` [A], drawn uniformly among equals."""
    best = values == values.max()
    return jnp.argmax(jnp.where(best, jax.random.uniform(key, values.shape), -1.0)).astype(jnp.int32)


def count_votes(q: Array) -> Array:
    """Count the heads that prefer each action [A] by values [K, A]; tied actions share a head's vote."""
    best = (q == q.max(axis=-1, keepdims=True)).astype(jnp.float32)
    return (best / best.sum(axis=-1, keepdims=True)).sum(axis=0)


def upper_bounds(q: Array, width: float) -> Array:
    """Compute the upper confidence bound of every action [A] from values [K, A] (Chen et al., 2017).

    Args:
        q: the values.
        width: standard deviations over heads from the mean to the bound.
    """
    return q.mean(axis=0) + width * q.std(axis=0)


def information_ratios(q: Array, width: float, noise: float) -> Array:
    """Compute the squared regret per information of every action [A] from values [K, A] (Nikolov et al., 2019).

    The regret is what the best action may be worth more than this one, by confidence bounds. The information is
    what a return with Gaussian noise would say about the value, by how far heads disagree.

    Args:
        q: the values.
        width: standard deviations over heads from the mean to a bound.
        noise: the standard deviation of the noise.
    """
    lower = q.mean(axis=0) - width * q.std(axis=0)
    regret = upper_bounds(q, width).max() - lower
    information = jnp.log1p(q.var(axis=0) / noise**2) + 1e-5
    return jnp.square(regret) / information


def epsilon_greedy(key: Array, greedy_action: Array, epsilon: Array, num_actions: int) -> Array:
    """Choose `greedy_action`, or with probability `epsilon` a uniformly random action."""
    coin_key, action_key = jax.random.split(key)
    explore = jax.random.uniform(coin_key) < epsilon
    return jnp.where(explore, jax.random.randint(action_key, (), 0, num_actions), greedy_action)


def linear_schedule(step: Array, start: float, end: float, anneal_steps: int) -> Array:
    """Interpolate from `start` at step 0 to `end` at `anneal_steps`, and stay there."""
    fraction = jnp.clip(step / anneal_steps, 0.0, 1.0) if anneal_steps else jnp.float32(1.0)
    return start + fraction * (end - start)


def summarise_belief(q: Array, num_voters: int | None = None) -> Belief:
    """Summarise the values [K, A] of one observation as the belief that they express.

    Args:
        q: the values.
        num_voters: how many heads vote, the last ones; None for all.
    """
    voters = q if num_voters is None else q[-num_voters:]
    votes = count_votes(voters)
    shares = votes / len(voters)
    entropy = -jnp.sum(jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), 0.0))
    return Belief(q, q.mean(axis=0), q.std(axis=0), votes, entropy)
