"""UCRL2 with the slip of a public implementation, to see what that does."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.tabular.agents import UCRL2, Counts, optimistic_transitions
from bootdqn.tabular.mdp import Shape


@dataclass(frozen=True, kw_only=True)
class AliasedUCRL2(UCRL2):
    """Planning edits the estimate of the transitions in place, so that optimism adds up from step to step.

    That is what TabulaRL does: it takes the estimate for a copy of it, except where optimism makes a next state
    certain, for which it takes a new array. Nothing else differs from `UCRL2`.
    """

    aliased: bool = True
    """For the record."""

    def plan(self, key: Array, shape: Shape, memory: Counts, episode: Array) -> Array:
        """Values of a problem that gets better with every step before the end."""
        del key
        posterior = self.posterior(memory)
        reward_width, transition_width = self.widths(shape, memory, episode)
        rewards = jnp.minimum(posterior.reward_mean + reward_width, self.max_reward)

        def step(carry: tuple[Array, Array], _: None):
            values, transitions = carry
            optimistic = optimistic_transitions(transitions, transition_width, values)
            q = rewards + optimistic @ values
            is_certain = optimistic.max(axis=-1, keepdims=True) == 1
            return (q.max(axis=-1), jnp.where(is_certain, transitions, optimistic)), q

        start = jnp.zeros(shape.num_states), posterior.mean_transitions
        return jax.lax.scan(step, start, None, length=shape.horizon, reverse=True)[1]
