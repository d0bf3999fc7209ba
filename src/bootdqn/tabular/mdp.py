"""Finite-horizon Markov decision processes: exact values of the best and of any policy."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.errors import require

MAX_ENTRIES = 2**24
"""Of a table of transitions; with more, planning anew in every episode would take minutes."""


def require_small(num_states: int, num_actions: int) -> None:
    """Raise `UserError` before tables are made that are too large to plan with."""
    require(
        num_states**2 * num_actions <= MAX_ENTRIES,
        f"{num_states} states are too many for an agent that keeps tables of them; take a deep one, such as boot",
    )


class Shape(NamedTuple):
    """What an agent is told of a problem."""

    num_states: int
    """S."""
    num_actions: int
    """A."""
    horizon: int
    """H, steps an episode."""


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
            transitions: probability of every next state [S, A, S].
            rewards: mean reward [S, A].
            reward_std: standard deviation of the reward's normal noise [S, A].
            start: the state in which episodes begin.
            horizon: steps an episode.
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
        """Value of every action when the rest of the episode is optimal [H, S, A], in double precision."""
        q = np.zeros((self.shape.horizon, *self.rewards.shape))
        values = np.zeros(self.shape.num_states)
        for step in reversed(range(self.shape.horizon)):
            q[step] = self.rewards + self.transitions @ values
            values = q[step].max(axis=-1)
        return q

    @property
    def optimal_value(self) -> float:
        """What an optimal episode collects in expectation."""
        return float(self.optimal_q[0, self.start].max())

    @cached_property
    def gaps(self) -> NDArray[np.float64]:
        """What every action loses against the best one [H, S, A]; the best lose exactly 0.

        The sum over the actions of an episode has the pseudo-regret of the policy as its mean.
        """
        return self.optimal_q.max(axis=-1, keepdims=True) - self.optimal_q

    def regret(self, policy: Array) -> Array:
        """Pseudo-regret: what an episode of `policy` (probabilities of actions [H, S, A]) loses in expectation.

        It is the sum of `gaps` over the states and actions that the policy visits, and so never negative.
        """
        transitions, gaps = jnp.asarray(self.transitions, jnp.float32), jnp.asarray(self.gaps, jnp.float32)
        occupied = jnp.zeros(self.shape.num_states).at[self.start].set(1.0)

        def step(occupied: Array, tables: tuple[Array, Array]):
            probabilities, gaps = tables
            chosen = occupied[:, None] * probabilities
            return jnp.einsum("sa,sat->t", chosen, transitions), (chosen * gaps).sum()

        return jax.lax.scan(step, occupied, (policy, gaps))[1].sum()


def plan(transitions: Array, rewards: Array, horizon: int) -> Array:
    """Values of all actions under the best policy [H, S, A], by backward induction."""

    def step(values: Array, _: None):
        q = rewards + transitions @ values
        return q.max(axis=-1), q

    return jax.lax.scan(step, jnp.zeros(transitions.shape[0]), None, length=horizon, reverse=True)[1]


def greedy_policy(q: Array, epsilon: float = 0.0) -> Array:
    """Probabilities of actions [..., A]: the best of `q`, ties shared, and `epsilon` spread over all."""
    best = (q == q.max(axis=-1, keepdims=True)).astype(jnp.float32)
    return (1 - epsilon) * best / best.sum(axis=-1, keepdims=True) + epsilon / q.shape[-1]


def draw(uniform: Array, probabilities: Array) -> Array:
    """Index drawn from `probabilities` [N] by a number uniform in [0, 1)."""
    cumulative = jnp.cumsum(probabilities)
    # Times the sum, which rounding may leave a little off 1; an index of probability 0 is never drawn.
    return jnp.argmax(uniform * cumulative[-1] < cumulative).astype(jnp.int32)
