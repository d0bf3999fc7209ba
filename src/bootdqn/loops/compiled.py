"""Environment, agent and replay in one compiled program, vmapped over seeds.

The way of one transition is in `_run_episode`: act, step, add, sample, update. Episodes of compiled environments
have a fixed length, so a run is a loop over episodes around a scan over steps, and whatever happens once an
episode (a head, a mask) needs no condition inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AgentConfig
from bootdqn.core.masks import draw_noise
from bootdqn.loops.protocol import diverged
from bootdqn.loops.seeds import SeedLoop, SeedProgram, repeat_episode, vmap_seeds
from bootdqn.loops.updates import example_transition, update_from_ring, with_added
from bootdqn.replay.n_step import make_window, push
from bootdqn.replay.priorities import Priorities, make_priorities
from bootdqn.replay.ring import Ring, add, add_some, make_ring
from bootdqn.types import Agent, Env, Learner, Params, Transition, UpdateMetrics

FLOPS_PER_CHUNK = 5e10
"""Arithmetic a program does before it reports: about half a second for one core."""
MAX_STEPS_PER_CHUNK = 2000
"""Environment steps at most, however small the network."""


class Exploration(NamedTuple):
    """Where training has been, for every state [S]; empty where observations are no states."""

    visits: Array
    """How many steps began in the state."""
    first_episode: Array
    """The number of the episode that first visited the state, from 1; 0 for none."""
    first_head: Array
    """The head that was followed then."""


class TrainState(NamedTuple):
    """All that the training of one seed needs to continue."""

    key: Array
    learner: Learner
    replay: Ring
    step: Array
    """Environment steps so far."""
    exploration: Exploration
    priorities: Priorities | None = None
    """How often each transition is replayed; None where all are replayed alike."""


class EpisodeMetrics(NamedTuple):
    """What one training episode reports; arrays [seeds, episodes] once collected."""

    episode_return: Array
    """Undiscounted return of the behaviour policy."""
    greedy_return: Array
    """Return of one episode by majority vote without dithering, after the training episode."""
    regret: Array
    """What the actions of the training episode lost in expectation: its mean is the pseudo-regret."""
    optimal: Array
    """Whether the training episode was optimal."""
    greedy_optimal: Array
    """Whether the episode by vote was optimal."""
    head: Array
    """The committed head."""
    epsilon: Array
    """Probability of a random action at the end of the episode."""
    num_updates: Array
    """How many updates were made in the episode."""
    updates: UpdateMetrics
    """Means over these updates; 0 where there were none."""


# Counters are the same in all vmapped seeds and stay unbatched: a condition on them remains a branch, where one
# on a batched value would run both sides.
_STATE_AXES = TrainState(
    key=0,  # pyright: ignore[reportArgumentType]
    learner=Learner(0, 0, 0, None),  # pyright: ignore[reportArgumentType]
    replay=Ring(0, None),  # pyright: ignore[reportArgumentType]
    step=None,  # pyright: ignore[reportArgumentType]
    exploration=0,  # pyright: ignore[reportArgumentType]
    priorities=0,  # pyright: ignore[reportArgumentType]
)


COLUMNS = (
    *("seed", "episode", "step", "return", "regret", "greedy_return", "length"),
    *("head", "epsilon", "updates", "loss", "q_mean", "q_spread"),
)
"""Columns of `metrics.csv` that a compiled loop has."""


def make_compiled_loop(
    env: Env,
    config: AgentConfig,
    *,
    seeds: Sequence[int],
    episodes: int,
    trunk: Callable[[Array], Any] | None = None,
    group_size: int | None = None,
) -> SeedLoop[TrainState, EpisodeMetrics]:
    """Make the loop that trains an agent on a compiled environment, for several seeds.

    Args:
        env: the environment.
        config: the agent's configuration.
        seeds: one number per training.
        episodes: episodes per seed.
        trunk: as for `make_agent`.
        group_size: as for `SeedLoop`.
    """
    program = make_compiled_program(env, config, episodes=episodes, trunk=trunk)
    return SeedLoop(program, seeds=seeds, episodes=episodes, group_size=group_size)


def make_compiled_program(
    env: Env,
    config: AgentConfig,
    *,
    episodes: int,
    trunk: Callable[[Array], Any] | None = None,
    chunk_episodes: int | None = None,
) -> SeedProgram[TrainState, EpisodeMetrics]:
    """Make the program that `make_compiled_loop` runs.

    Args:
        env: the environment.
        config: the agent's configuration.
        episodes: episodes per seed that are planned; replay never holds more.
        trunk: as for `make_agent`.
        chunk_episodes: episodes between two reports, in place of about half a second's worth.
    """
    agent = make_agent(config, env.encoding, env.num_actions, trunk)
    capacity = min(config.replay_capacity, episodes * env.horizon)
    if chunk_episodes is None:
        chunk_episodes = max(1, _steps_per_chunk(agent, config) // env.horizon)
    committed = config.acting == "committed_head"

    def init(key: Array) -> TrainState:
        key, init_key, reset_key = jax.random.split(key, 3)
        _, obs = env.reset(reset_key)
        example = example_transition(obs, config)
        unseen = Exploration(*[jnp.zeros(env.encoding.num_states, jnp.int32)] * 3)
        priorities = make_priorities(capacity) if config.prioritised else None
        ring = make_ring(example, capacity)
        return TrainState(key, agent.init(init_key), ring, jnp.int32(0), unseen, priorities)

    def run(state: TrainState, num_episodes: Array) -> tuple[TrainState, EpisodeMetrics]:
        return repeat_episode(partial(_run_episode, env, agent, config), state, num_episodes, chunk_episodes)

    def episode(metrics: EpisodeMetrics, at: tuple[int, int]) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "regret": metrics.regret[at],
            "greedy_return": metrics.greedy_return[at],
            "head": metrics.head[at] if committed else None,
            "epsilon": metrics.epsilon[at],
            "num_updates": metrics.num_updates[at],
        }
        if metrics.num_updates[at]:
            fields |= {name: values[at] for name, values in metrics.updates._asdict().items()}
        return fields

    def take_replay(state: TrainState) -> tuple[TrainState, Transition]:
        return state._replace(replay=state.replay._replace(data=None)), state.replay.data

    init_seeds, run_seeds = vmap_seeds(init, run, _STATE_AXES)
    return SeedProgram(
        init=init_seeds,
        run=run_seeds,
        agent=agent,
        chunk_episodes=chunk_episodes,
        horizon=env.horizon,
        columns=COLUMNS,
        episode=episode,
        is_finite=lambda metrics: np.isfinite(metrics.updates.loss),
        diverged=lambda where: diverged(f"the loss {where}", config.learning_rate),
        params=lambda state: state.learner.params,
        take_replay=take_replay,
        put_replay=lambda state, data: state._replace(replay=state.replay._replace(data=data)),
        replay_size=lambda state: (int(state.replay.added), capacity),
    )


def _steps_per_chunk(agent: Agent, config: AgentConfig) -> int:
    """Environment steps between two reports."""
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    # Three passes forward and two backward, a multiplication and an addition for every weight.
    flops = 10 * config.batch_size * sum(leaf.size for leaf in jax.tree.leaves(params))
    return min(MAX_STEPS_PER_CHUNK, int(FLOPS_PER_CHUNK / flops * config.learning_period_steps))


def _run_episode(
    env: Env, agent: Agent, config: AgentConfig, state: TrainState
) -> tuple[TrainState, EpisodeMetrics]:
    """Train for one episode, then play one by vote."""
    key, reset_key, begin_key, mask_key, step_key, greedy_key = jax.random.split(state.key, 6)
    head = agent.draw_head(begin_key, state.learner.params)
    episode_mask = agent.draw_mask(mask_key)

    def remember(
        replay: Ring, priorities: Priorities | None, window: Any, transition: Transition, is_last: Array
    ) -> tuple[Ring, Priorities | None, Any]:
        if not config.sums_rewards:
            return add(replay, transition), with_added(priorities, replay, jnp.ones(1, bool)), window
        window, transitions, complete = push(window, transition, is_last)
        return add_some(replay, transitions, complete), with_added(priorities, replay, complete), window

    def step(carry, key: Array):
        learner, replay, priorities, window, count, head, env_state, obs = carry
        act_key, env_key, mask_key, sample_key = jax.random.split(key, 4)
        head = agent.keep_head(act_key, head)
        action = agent.act(act_key, learner.params, head, obs, agent.epsilon(count, head))
        env_state, out = env.step(env_key, env_state, action)
        discount = jnp.where(out.terminated, 0.0, jnp.float32(config.discount))
        mask = agent.draw_mask(mask_key) if config.mask_per == "step" else episode_mask
        count = count + 1
        noise = draw_noise(sample_key, config.reward_noise, (config.num_heads,))
        reward = config.stored_reward(out.reward, noise)
        transition = Transition(obs, action, reward, discount, out.obs, mask)
        replay, priorities, window = remember(replay, priorities, window, transition, count % env.horizon == 0)
        due = (count >= config.learning_start_steps) & (count % config.learning_period_steps == 0)
        if config.sums_rewards:
            due &= replay.added > 0
        learner, metrics, priorities = jax.lax.cond(
            due,
            lambda *both: update_from_ring(agent, config, sample_key, both[0], replay, both[1]),
            lambda *both: (both[0], UpdateMetrics(*[jnp.float32(0)] * 3), both[1]),
            learner,
            priorities,
        )
        carry = (learner, replay, priorities, window, count, head, env_state, out.obs)
        return carry, (obs, head, out.reward, metrics)

    env_state, obs = env.reset(reset_key)
    window = make_window(example_transition(obs, config), config.n_steps) if config.sums_rewards else None
    carry = (state.learner, state.replay, state.priorities, window, state.step, head, env_state, obs)
    carry, (observations, heads, rewards, updates) = jax.lax.scan(
        step, carry, jax.random.split(step_key, env.horizon)
    )
    learner, replay, priorities, _, count, _, env_state, _ = carry
    num_updates = learner.updates - state.learner.updates
    best_rest = jnp.float32(0)
    if config.bound_values:
        best_rest = _best_rest(config.learned_reward(rewards), config.discount)
    learner = learner._replace(params=agent.note_return(learner.params, head, rewards.sum(), best_rest))
    greedy_return, greedy_optimal = _play_greedily(greedy_key, env, agent, learner.params)
    metrics = EpisodeMetrics(
        episode_return=rewards.sum(),
        greedy_return=greedy_return,
        regret=env.regret(env_state, rewards.sum()),
        optimal=env.is_optimal(env_state, rewards.sum()),
        greedy_optimal=greedy_optimal,
        head=head,
        epsilon=agent.epsilon(count, head),
        num_updates=num_updates,
        updates=jax.tree.map(lambda x: x.sum() / jnp.maximum(num_updates, 1), updates),
    )
    exploration = state.exploration
    if env.encoding.num_states:
        episode = state.step // env.horizon + 1
        exploration = _explored(exploration, observations, episode, heads)
    return TrainState(key, learner, replay, count, exploration, priorities), metrics


def _best_rest(rewards: Array, discount: float) -> Array:
    """Compute the largest discounted sum of the rewards [H] of an episode from any of its steps on."""

    def back(rest: Array, reward: Array) -> tuple[Array, Array]:
        rest = reward + discount * rest
        return rest, rest

    return jax.lax.scan(back, jnp.float32(0), rewards, reverse=True)[1].max()


def _explored(exploration: Exploration, states: Array, episode: Array, heads: Array) -> Exploration:
    """Add the states [H] of an episode, and the heads [H] that were followed, to what has been explored."""
    visits = exploration.visits.at[states].add(1)
    new = (exploration.visits == 0) & (visits > 0)
    first_step = jnp.zeros_like(visits).at[states[::-1]].set(jnp.arange(len(states))[::-1])
    return Exploration(
        visits,
        jnp.where(new, episode, exploration.first_episode),
        jnp.where(new, heads[first_step], exploration.first_head),
    )


def _play_greedily(key: Array, env: Env, agent: Agent, params: Params) -> tuple[Array, Array]:
    """Return of one episode by majority vote, and whether it was optimal."""
    reset_key, step_key = jax.random.split(key)

    def step(carry, key: Array):
        env_state, obs = carry
        act_key, env_key = jax.random.split(key)
        env_state, out = env.step(env_key, env_state, agent.greedy(act_key, params, obs))
        return (env_state, out.obs), out.reward

    (env_state, _), rewards = jax.lax.scan(step, env.reset(reset_key), jax.random.split(step_key, env.horizon))
    return rewards.sum(), env.is_optimal(env_state, rewards.sum())
