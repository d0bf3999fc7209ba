"""What loops compile in order to learn: from a transition that is stored to the update of the agent.

Batches are drawn uniformly or by priorities, from a ring inside the program or, of pictures, outside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bootdqn.core.config import AgentConfig
from bootdqn.core.masks import draw_noise
from bootdqn.envs.spaces import Observations
from bootdqn.loops.slots import Draws
from bootdqn.replay.frames import STACK, FrameBatch
from bootdqn.replay.n_step import Window, make_window, push
from bootdqn.replay.priorities import (
    Priorities,
    draw_rows,
    importance_weights,
    make_priorities,
    with_errors,
    with_new,
)
from bootdqn.replay.ring import Ring, add_some, make_ring, new_rows, rows_of, sample
from bootdqn.types import Agent, Learner, Transition, UpdateMetrics


class Learned(NamedTuple):
    """What updates change, and what they report."""

    learner: Learner
    """Parameters, target parameters and the state of the optimizer."""
    replay: Ring | None
    """The transitions; None where pictures are in a `FrameReplay`."""
    sums: UpdateMetrics
    """Sums over the updates since they were last read."""
    window: Window | None = None
    """The newest transitions of every slot, where rewards of several steps are summed, arrays [S, ...]."""
    priorities: Priorities | None = None
    """How often each row of replay is drawn; None where all are drawn alike."""


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
        return _update(agent, config, learner, sample(key, ring, config.batch_size), None, None)
    rows = draw_rows(key, priorities, config.batch_size)
    return _update(agent, config, learner, rows_of(ring, rows), rows, priorities)


def _update(
    agent: Agent,
    config: AgentConfig,
    learner: Learner,
    batch: Transition,
    rows: Array | None,
    priorities: Priorities | None,
) -> tuple[Learner, UpdateMetrics, Priorities | None]:
    """Update the agent from a batch of some rows [N] of replay; `rows` are needed where there are priorities."""
    if priorities is None or rows is None:
        learner, metrics, _ = agent.update(learner, batch)
        return learner, metrics, None
    weights = importance_weights(priorities, rows, config.importance_exponent)
    learner, metrics, errors = agent.update(learner, batch._replace(mask=batch.mask * weights[:, None]))
    assert errors is not None
    return learner, metrics, with_errors(priorities, rows, errors, config.priority_exponent)


def with_added(priorities: Priorities | None, ring: Ring, valid: Array) -> Priorities | None:
    """Give transitions that are added next, if `valid` [S], the priority of new ones."""
    if priorities is None:
        return None
    beyond = len(priorities.levels[0])  # which may be more than there are rows
    return with_new(priorities, jnp.where(valid, new_rows(ring, valid), beyond), valid)


def make_initial(
    agent: Agent, config: AgentConfig, observations: Observations, capacity: int, num_envs: int
) -> Callable[[Array], Learned]:
    """A function (key) -> initial parameters and an empty ring; without a ring where observations are pictures."""

    def init(key: Array) -> Learned:
        example = example_transition(jnp.zeros(observations.shape, observations.dtype), config)
        learner = agent.init(key)
        priorities = make_priorities(capacity) if config.prioritised else None
        if observations.encoding.kind == "pictures":
            return Learned(learner, None, no_sums(), priorities=priorities)
        window = None
        if config.sums_rewards:
            empty = make_window(example, config.n_steps)
            window = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *x.shape)), empty)
        return Learned(learner, make_ring(example, capacity), no_sums(), window, priorities)

    return init


def make_learn(agent: Agent, config: AgentConfig) -> Callable[..., Learned]:
    """A function that adds the transitions of a tick to a ring and updates the agent so many times."""

    def learn(
        learned: Learned,
        draws: Draws,
        obs: Array,
        fresh: Array,
        action: Array,
        reward: Array,
        no_future: Array,
        ended: Array,
        next_obs: Array,
        valid: Array,
        num_updates: Array,
    ) -> Learned:
        assert learned.replay is not None
        discount = jnp.where(no_future, 0.0, jnp.float32(config.discount))
        noise = draw_noise(draws.key, config.reward_noise, draws.mask.shape)
        stored = config.stored_reward(reward, noise)
        transitions = Transition(obs, action, stored, discount, next_obs, draws.mask)
        window = learned.window
        if window is not None:
            # An episode that was broken off leaves transitions behind, which nothing follows.
            kept = window._replace(size=jnp.where(fresh, 0, window.size))
            window, transitions, complete = jax.vmap(_push_valid)(kept, transitions, ended, valid)
            transitions, valid = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (transitions, complete))
        priorities = with_added(learned.priorities, learned.replay, valid)
        replay = add_some(learned.replay, transitions, valid)

        def update(index: Array, state: tuple[Learner, UpdateMetrics, Priorities | None]) -> tuple[Any, ...]:
            learner, sums, priorities = state
            key = jax.lax.cond(index == 0, lambda: draws.key, lambda: jax.random.fold_in(draws.key, index))
            learner, metrics, priorities = update_from_ring(agent, config, key, learner, replay, priorities)
            return learner, jax.tree.map(jnp.add, sums, metrics), priorities

        learner, sums, priorities = jax.lax.fori_loop(
            0, num_updates, update, (learned.learner, learned.sums, priorities)
        )
        return Learned(learner, replay, sums, window, priorities)

    return learn


def _push_valid(
    window: Window, transition: Transition, ended: Array, valid: Array
) -> tuple[Window, Transition, Array]:
    """Do what `push` does where a slot made a step, and nothing where its environment was only reset."""
    pushed, rows, complete = push(window, transition, ended)
    return jax.tree.map(lambda new, old: jnp.where(valid, new, old), pushed, window), rows, complete & valid


def make_update(agent: Agent, config: AgentConfig) -> Callable[[Learned, FrameBatch], Learned]:
    """A function that updates the agent once from a batch of pictures."""

    def update(learned: Learned, batch: FrameBatch) -> Learned:
        frames, action, reward, discount, mask, rows = map(jnp.asarray, batch)
        transitions = Transition(frames[:, :STACK], action, reward, discount, frames[:, -STACK:], mask)
        learner, metrics, priorities = _update(
            agent, config, learned.learner, transitions, rows, learned.priorities
        )
        return Learned(learner, None, jax.tree.map(jnp.add, learned.sums, metrics), priorities=priorities)

    return update


def no_sums() -> UpdateMetrics:
    """Make sums over no updates."""
    return UpdateMetrics(*[np.float32(0)] * 3)  # pyright: ignore[reportArgumentType]
