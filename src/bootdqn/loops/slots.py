"""Who acts in the slots of a Gymnasium environment: heads that are followed for whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.core.config import AgentConfig
from bootdqn.types import Agent, Params


class Slots(NamedTuple):
    """Who acts in every slot; arrays [S, ...]."""

    key: Array
    """Key from which the randomness of the slot's later episodes derives."""
    step_key: Array
    """Key from which the randomness of the current episode derives."""
    head: Array
    """The head that is followed."""
    mask: Array
    """Bootstrap weights of the episode [S, K]."""
    ticks: Array
    """Steps since the episode began."""


class Draws(NamedTuple):
    """What is drawn at random for learning from one step of all slots."""

    mask: Array
    """Bootstrap weights of its transitions [S, K]."""
    key: Array
    """Key from which the batches of its updates are drawn."""


class SlotPolicy(NamedTuple):
    """The pure functions of acting in slots."""

    act: Callable[[Params, Slots, Array, Array, Array], tuple[Array, Draws, Slots]]
    """(params, slots, which begin an episode [S], observations, steps so far) -> actions, draws, slots."""
    begin: Callable[[Params, Slots, Array], Slots]
    """(params, slots, which begin an episode [S]) -> slots with new heads and masks there."""
    hold: Callable[[Params, Slots], Params]
    """(params, slots) -> a copy of those parameters that acting needs until an episode begins."""
    act_held: Callable[[Params, Slots, Array, Array], tuple[Array, Draws, Slots]]
    """(held parameters, slots that have begun, observations, steps so far) -> actions, draws, slots."""
    draw: Callable[[Slots], Draws]
    """(slots after acting) -> the draws that acting returned."""


def make_slots(key: Array, config: AgentConfig, num_envs: int, first: int = 0) -> Slots:
    """Make slots, numbered from `first`, in which no episode has begun; the key is that of the training."""
    keys = jnp.stack([jax.random.fold_in(key, slot) if slot else key for slot in range(first, first + num_envs)])
    head, mask = jnp.zeros(num_envs, jnp.int32), jnp.zeros((num_envs, config.num_heads))
    return Slots(keys, keys, head, mask, jnp.zeros(num_envs, jnp.int32))


def make_slot_policy(agent: Agent, config: AgentConfig, num_envs: int) -> SlotPolicy:
    """Make the functions by which an agent acts in `num_envs` slots."""
    # Fewer heads act than there are: the others need not be held, unless one of them may take over.
    committed = config.acting == "committed_head" and config.redraw_probability == 0
    followed_alone = committed and config.num_voters == config.num_heads
    holds_some = followed_alone and num_envs < config.num_heads

    def begin_one(params: Params, key: Array) -> Slots:
        key, _, begin_key, mask_key, step_key, _ = jax.random.split(key, 6)
        head = agent.draw_head(begin_key, params)
        return Slots(key, step_key, head, agent.draw_mask(mask_key), jnp.int32(-1))

    def begin(params: Params, slots: Slots, fresh: Array) -> Slots:
        def choose(new: Array, old: Array) -> Array:
            return jnp.where(fresh.reshape(num_envs, *[1] * (new.ndim - 1)), new, old)

        return jax.tree.map(choose, jax.vmap(begin_one, in_axes=(None, 0))(params, slots.key), slots)

    def hold(params: Params, slots: Slots) -> Params:
        return params.only(slots.head) if holds_some else jax.tree.map(jnp.copy, params)

    def tick_keys(slots: Slots) -> Array:
        """Keys [S, 4] of acting, environment, mask and batch."""
        return jax.vmap(lambda key, tick: jax.random.split(jax.random.fold_in(key, tick), 4))(
            slots.step_key, slots.ticks
        )

    def draw(slots: Slots) -> Draws:
        keys = tick_keys(slots)
        per_step = config.mask_per == "step"
        return Draws(jax.vmap(agent.draw_mask)(keys[:, 2]) if per_step else slots.mask, keys[0, 3])

    def act_now(
        params: Params, slots: Slots, obs: Array, step: Array, *, held: bool
    ) -> tuple[Array, Draws, Slots]:
        slots = slots._replace(ticks=slots.ticks + 1)
        keys = tick_keys(slots)[:, 0]
        slots = slots._replace(head=jax.vmap(agent.keep_head)(keys, slots.head))
        heads = jnp.arange(num_envs) if held and holds_some else slots.head
        dithers = max(config.epsilon_start, config.epsilon_end) > 0
        epsilon = jax.vmap(agent.epsilon, in_axes=(None, 0))(step, slots.head) if dithers else None
        actions = jax.vmap(agent.act, in_axes=(0, None, 0, 0, 0))(keys, params, heads, obs, epsilon)
        return actions, draw(slots), slots

    def act(params: Params, slots: Slots, fresh: Array, obs: Array, step: Array) -> tuple[Array, Draws, Slots]:
        slots = jax.lax.cond(fresh.any(), begin, lambda _, slots, __: slots, params, slots, fresh)
        return act_now(params, slots, obs, step, held=False)

    def act_held(held: Params, slots: Slots, obs: Array, step: Array) -> tuple[Array, Draws, Slots]:
        return act_now(held, slots, obs, step, held=True)

    return SlotPolicy(act, begin, hold, act_held, draw)
