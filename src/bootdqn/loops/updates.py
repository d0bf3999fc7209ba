"""One update from a ring of transitions, drawn uniformly or by their priorities."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from bootdqn.core.config import AgentConfig
from bootdqn.replay.priorities import Priorities, draw_rows, importance_weights, with_errors, with_new
from bootdqn.replay.ring import Ring, new_rows, rows_of, sample
from bootdqn.types import Agent, Learner, Transition, UpdateMetrics


def example_transition(obs: Array, config: AgentConfig) -> Transition:
    """Make a transition of the shapes that replay holds."""
    per_head = jnp.zeros(config.num_heads)
    reward = config.stored_reward(jnp.float32(0), per_head if config.reward_noise > 0 else None)
    return Transition(obs, jnp.int32(0), reward, jnp.float32(0), obs, per_head)


def update_from_ring(
    agent: Agent, config: AgentConfig, key: Array, learner: Learner, ring: Ring, priorities: Priorities | None
) -> tuple[Learner, UpdateMetrics, Priorities | None]:
    """Draw a batch and update the agent once.

    Args:
        agent: the agent.
        config: its configuration.
        key: the random key of the batch.
        learner: what the update changes.
        ring: the transitions, at least one.
        priorities: their priorities; None where all are drawn alike.

    Returns:
        The learner, metrics of the update, and priorities by the errors of the batch.
    """
    if priorities is None:
        learner, metrics, _ = agent.update(learner, sample(key, ring, config.batch_size))
        return learner, metrics, None
    rows = draw_rows(key, priorities, config.batch_size)
    batch = weighted(rows_of(ring, rows), importance_weights(priorities, rows, config.importance_exponent))
    learner, metrics, errors = agent.update(learner, batch)
    assert errors is not None
    return learner, metrics, with_errors(priorities, rows, errors, config.priority_exponent)


def weighted(batch: Transition, weights: Array) -> Transition:
    """Multiply the bootstrap weights of transitions [N, K] by a weight of each [N]."""
    return batch._replace(mask=batch.mask * weights[:, None])


def with_added(priorities: Priorities | None, ring: Ring, valid: Array) -> Priorities | None:
    """Give transitions that are added next, if `valid` [S], the priority of new ones."""
    if priorities is None:
        return None
    beyond = len(priorities.levels[0])  # which may be more than there are rows
    return with_new(priorities, jnp.where(valid, new_rows(ring, valid), beyond), valid)
