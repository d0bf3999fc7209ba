"""Episodes of an agent that sees the state: planned, played and counted in one program, vmapped over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bootdqn.errors import require
from bootdqn.loops.seeds import SeedLoop, SeedProgram, repeat_episode, vmap_seeds
from bootdqn.tabular.agents import TabularAgent, Trajectory
from bootdqn.tabular.mdp import MDP, draw, greedy_policy
from bootdqn.types import Env

MAX_STEPS = 2**24
"""The number of steps up to which single precision counts exactly."""
_OPERATIONS_PER_CHUNK = 2e7
"""Entries of tables that a program goes through before it reports: about half a second for one core."""
_TOLERANCE = 1e-5
"""Regret of a policy that is optimal but for rounding."""


class TabularTrainState(NamedTuple):
    """All that the training of one seed needs to continue."""

    key: Array
    memory: Any
    episode: Array
    """Number of the next episode, from 1."""


class TabularMetrics(NamedTuple):
    """What one episode reports; arrays [seeds, episodes] once collected."""

    episode_return: Array
    regret: Array
    """Exact pseudo-regret of the policy that was followed."""
    optimal: Array
    """Whether the regret is 0, but for rounding."""
    greedy_optimal: Array
    """Whether the regret would be 0 without random actions."""
    finite: Array
    """Whether all values were numbers: without that, nothing else means anything."""


# The number of the episode is the same in all vmapped seeds and stays unbatched.
_STATE_AXES = TabularTrainState(key=0, memory=0, episode=None)  # pyright: ignore[reportArgumentType]


COLUMNS = ("seed", "episode", "step", "return", "regret", "length")
"""Columns of `metrics.csv` that a tabular loop has."""


def make_tabular_loop(
    env: Env, agent: TabularAgent, *, seeds: Sequence[int], episodes: int, group_size: int | None = None
) -> SeedLoop[TabularTrainState, TabularMetrics]:
    """Make the loop that runs a tabular baseline on an environment, for several seeds.

    Episodes are drawn from the environment's exact problem, `env.mdp`, not by its `step`.

    Args:
        env: the environment.
        agent: the tabular baseline.
        seeds: one number per training.
        episodes: episodes per seed.
        group_size: as for `SeedLoop`.
    """
    mdp = env.mdp
    states, actions, horizon = mdp.shape
    require(
        episodes * horizon <= MAX_STEPS,
        f"{episodes} episodes of {horizon} steps are more than {MAX_STEPS} steps, to which counts are exact",
    )
    entries = horizon * states * actions * states
    chunk_episodes = max(1, min(episodes, int(_OPERATIONS_PER_CHUNK / entries)))

    def init(key: Array) -> TabularTrainState:
        return TabularTrainState(key, agent.init(mdp.shape), jnp.int32(1))

    def run(state: TabularTrainState, num_episodes: Array) -> tuple[TabularTrainState, TabularMetrics]:
        return repeat_episode(partial(_run_episode, mdp, agent), state, num_episodes, chunk_episodes)

    init_seeds, run_seeds = vmap_seeds(init, run, _STATE_AXES)
    program: SeedProgram[TabularTrainState, TabularMetrics] = SeedProgram(
        init=init_seeds,
        run=run_seeds,
        agent=agent,
        chunk_episodes=chunk_episodes,
        horizon=horizon,
        columns=COLUMNS,
        episode=lambda metrics, at: {"regret": metrics.regret[at]},
        is_finite=lambda metrics: np.asarray(metrics.finite),
        diverged=lambda where: (
            f"training diverged: a value {where}; some parameter of the agent is too large or too small for "
            "single precision"
        ),
        params=lambda state: None,
        take_replay=lambda state: (state, None),
        put_replay=lambda state, data: state,
        replay_size=lambda state: (0, 0),
    )
    return SeedLoop(program, seeds=seeds, episodes=episodes, group_size=group_size)


def _run_episode(
    mdp: MDP, agent: TabularAgent, state: TabularTrainState
) -> tuple[TabularTrainState, TabularMetrics]:
    """Plan, play one episode and update the memory."""
    key, plan_key, play_key = jax.random.split(state.key, 3)
    q = agent.plan(plan_key, mdp.shape, state.memory, state.episode)
    policy = greedy_policy(q, agent.epsilon)
    trajectory = play(play_key, mdp, policy)
    regret = mdp.regret(policy)
    greedy_regret = mdp.regret(greedy_policy(q)) if agent.epsilon else regret
    metrics = TabularMetrics(
        episode_return=trajectory.rewards.sum(),
        regret=regret,
        optimal=regret < _TOLERANCE,
        greedy_optimal=greedy_regret < _TOLERANCE,
        finite=jnp.isfinite(q).all(),
    )
    memory = agent.update(mdp.shape, state.memory, trajectory)
    return TabularTrainState(key, memory, state.episode + 1), metrics


def play(key: Array, mdp: MDP, policy: Array) -> Trajectory:
    """One episode of a policy (probabilities of actions [H, S, A])."""
    choice_key, noise_key = jax.random.split(key)
    uniforms = jax.random.uniform(choice_key, (mdp.shape.horizon, 2))
    noise = jax.random.normal(noise_key, (mdp.shape.horizon,))
    tables = (mdp.transitions, mdp.rewards, mdp.reward_std)
    transitions, rewards, reward_std = (jnp.asarray(table, jnp.float32) for table in tables)

    def step(state: Array, inputs: tuple[Array, Array, Array]):
        policy, uniform, noise = inputs
        action = draw(uniform[0], policy[state])
        next_state = draw(uniform[1], transitions[state, action])
        reward = rewards[state, action] + reward_std[state, action] * noise
        return next_state, Trajectory(state, action, reward, next_state)

    return jax.lax.scan(step, jnp.int32(mdp.start), (policy, uniforms, noise))[1]
