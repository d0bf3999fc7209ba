"""Finite-horizon Markov decision processes, with the exact values of the optimal and of any policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.errors import require

MAX_ENTRIES = 2**26
"""Most entries of H tables of transitions; with more, planning once would take many seconds."""


class Shape(NamedTuple):
    """The sizes of a problem, which an agent is told."""

    num_states: int
    """The number of states S."""
    num_actions: int
    """The number of actions A."""
    horizon: int
    """The number of steps per episode H."""


def require_small(shape: Shape) -> None:
    """Raise `UserError` if the tables of a problem would be too large to plan with."""
    states, actions, horizon = shape
    require(
        horizon * states**2 * actions <= MAX_ENTRIES,
        f"{states} states and {horizon} steps are too many for a tabular baseline; take a deep agent like boot",
    )


class MDP:
    """A known finite-horizon problem with the same dynamics at every step.

    The state after the last action does not matter: it is not part of the episode.
    """

    def __init__(
        self,
        *,
        transitions: NDArray[np.floating],
        rewards: NDArray[np.floating],
        reward_std: NDArray[np.floating],
        start: int,
        horizon: int,
    ):
        """Check and keep the tables.

        Args:
            transitions: the probability of every next state [S, A, S].
            rewards: the mean reward [S, A].
            reward_std: the standard deviation of the normal noise of rewards [S, A].
            start: the state in which episodes begin.
            horizon: the number of steps per episode.
        """
        num_states, num_actions = rewards.shape
        require(
            transitions.shape == (num_states, num_actions, num_states) and reward_std.shape == rewards.shape,
            f"expected tables [S, A, S], [S, A] and [S, A], got {transitions.shape}, {rewards.shape} and "
            f"{reward_std.shape}",
        )
        require(bool((transitions >= 0).all()), "probabilities of transitions must not be negative")
        require(
            np.allclose(transitions.sum(axis=-1), 1, atol=1e-6),
            "probabilities of transitions must sum to 1 over next states",
        )
        require(bool((reward_std >= 0).all()), "reward_std must not be negative")
        require(0 <= start < num_states, f"start must be a state from 0 to {num_states - 1}, got {start}")
        require(horizon >= 1, f"horizon must be at least 1, got {horizon}")
        self.shape = Shape(num_states, num_actions, horizon)
        self.transitions = transitions
        self.rewards = rewards
        self.reward_std = reward_std
        self.start = start

    @cached_property
    def optimal_q(self) -> NDArray[np.float64]:
        """The value of every action if the rest of the episode is optimal [H, S, A], in double precision."""
        q = np.zeros((self.shape.horizon, *self.rewards.shape))
        values = np.zeros(self.shape.num_states)
        for step in reversed(range(self.shape.horizon)):
            q[step] = self.rewards + self.transitions @ values
            values = q[step].max(axis=-1)
        return q

    @property
    def optimal_value(self) -> float:
        """The expected return of an optimal episode."""
        return float(self.optimal_q[0, self.start].max())

    @cached_property
    def gaps(self) -> NDArray[np.float64]:
        """The expected loss of every action against the best one [H, S, A], which is exactly 0 for the best.

        The sum over the actions of an episode has the pseudo-regret of the policy as its mean.
        """
        return self.optimal_q.max(axis=-1, keepdims=True) - self.optimal_q

    def regret(self, policy: Array) -> Array:
        """Return the pseudo-regret of a policy with probabilities of actions [H, S, A]: its expected loss.

        It is the sum of `gaps` over the states and actions that the policy visits, and so never negative.
        """
        transitions, gaps = jnp.asarray(self.transitions, jnp.float32), jnp.asarray(self.gaps, jnp.float32)
        occupied = jnp.zeros(self.shape.num_states).at[self.start].set(1.0)

        def step(occupied: Array, tables: tuple[Array, Array]):
            probabilities, gaps = tables
            chosen = occupied[:, None] * probabilities
            return jnp.einsum("sa,sat->t", chosen, transitions), (chosen * gaps).sum()

        return jax.lax.scan(step, occupied, (policy, gaps))[1].sum()


def backward(backup: Callable[[Array, Any], Array], shape: Shape, inputs: Any = None) -> Array:
    """Compute the values of all actions [H, S, A] from the last step back.

    Args:
        backup: takes the values of the next states [S] and the inputs of the step, and returns values [S, A].
        shape: the sizes of the problem.
        inputs: a pytree of arrays [H, ...] with the inputs of every step.
    """

    def step(values: Array, inputs: Any):
        q = backup(values, inputs)
        return q.max(axis=-1), q

    start = jnp.zeros(shape.num_states)
    return jax.lax.scan(step, start, inputs, length=shape.horizon, reverse=True)[1]


def plan(transitions: Array, rewards: Array, shape: Shape) -> Array:
    """Return the values of all actions under the best policy [H, S, A]."""
    return backward(lambda values, _: rewards + transitions @ values, shape)


def greedy_policy(q: Array, epsilon: float = 0.0) -> Array:
    """Return the probabilities of actions [..., A] of the epsilon-greedy policy for `q`, which shares ties."""
    best = (q == q.max(axis=-1, keepdims=True)).astype(jnp.float32)
    return (1 - epsilon) * best / best.sum(axis=-1, keepdims=True) + epsilon / q.shape[-1]


def draw(uniform: Array, probabilities: Array) -> Array:
    """Return the index that a number uniform in [0, 1) draws from `probabilities` [N]."""
    cumulative = jnp.cumsum(probabilities)
    # The factor corrects a sum that rounding leaves a little off 1; an index of probability 0 is never drawn.
    return jnp.argmax(uniform * cumulative[-1] < cumulative).astype(jnp.int32)
