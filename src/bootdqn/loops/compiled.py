"""Environment, agent and replay in one compiled program, vmapped over seeds.

The way of one transition is in `_run_episode`: act, step, add, sample, update. Episodes of compiled environments
have a fixed length, so a run is a loop over episodes around a scan over steps, and whatever happens once an
episode (a head, a mask) needs no condition inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bootdqn.agent import AgentConfig, make_agent, make_network
from bootdqn.replay.device import Ring, add, make_ring, sample
from bootdqn.types import Agent, Env, Learner, Params, Transition, UpdateMetrics

FLOPS_PER_CHUNK = 5e10
"""Arithmetic a program does before it reports: about half a second for one core."""
MAX_STEPS_PER_CHUNK = 2000
"""Environment steps at most, however small the network."""


class TrainState(NamedTuple):
    """All that one seed's training needs to go on."""

    key: Array
    learner: Learner
    replay: Ring
    step: Array
    """Environment steps so far."""


class EpisodeMetrics(NamedTuple):
    """What one training episode reports; arrays [seeds, episodes] once collected."""

    episode_return: Array
    """Undiscounted return of the behaviour policy."""
    greedy_return: Array
    """Return of one episode by majority vote without dithering, after the training episode."""
    optimal: Array
    """Whether the training episode was optimal."""
    greedy_optimal: Array
    """Whether the one by vote was."""
    head: Array
    """The committed head."""
    epsilon: Array
    """At the end of the episode."""
    num_updates: Array
    """In this episode."""
    updates: UpdateMetrics
    """Means over those updates; 0 where there were none."""


class Chunk(NamedTuple):
    """Consecutive episodes of some seeds, in order."""

    first_episode: int
    seeds: tuple[int, ...]
    metrics: EpisodeMetrics
    """numpy arrays [seeds, episodes]."""


# Counters are the same in all vmapped seeds and stay unbatched: a condition on them remains a branch, where one
# on a batched value would run both sides.
_STATE_AXES = TrainState(key=0, learner=Learner(0, 0, 0, None), replay=Ring(0, None), step=None)  # pyright: ignore[reportArgumentType]


class CompiledTraining:
    """Trains one agent configuration on one environment for several seeds at once.

    Seeds are vmapped in groups, each group one call of one compiled program, and groups share the processor's
    cores. On a CPU a group is one seed: vmapping gains nothing there (`bootdqn bench chain` shows it), and so a
    seed's results do not depend on which others run beside it. On an accelerator all seeds are one group.
    """

    def __init__(
        self,
        env: Env,
        config: AgentConfig,
        *,
        seeds: Sequence[int],
        episodes: int,
        trunk: Callable[[Array], Any] | None = None,
        group_size: int | None = None,
    ):
        """Compile nothing yet; `trunk` is as for `make_network`, `group_size` how many seeds are vmapped."""
        if group_size is None:
            group_size = 1 if jax.default_backend() == "cpu" else len(seeds)
        self.env = env
        self.config = config
        self.group_size = group_size
        self.episodes = episodes
        network = make_network(config, env.encoding, env.num_actions, trunk)
        self.agent = make_agent(config, network, env.num_actions)
        self.chunk_episodes = max(1, _steps_per_chunk(self.agent, config) // env.horizon)
        self._groups = [tuple(seeds[i : i + group_size]) for i in range(0, len(seeds), group_size)]
        self._states: list[TrainState | None] = [None] * len(self._groups)
        self._init, self._run = make_program(
            env, self.agent, config, capacity=self.capacity, chunk_episodes=self.chunk_episodes
        )
        self._compiled: dict[int, Callable[[TrainState, int], tuple[TrainState, EpisodeMetrics]]] = {}

    @property
    def capacity(self) -> int:
        """Transitions a ring must hold: never more than the run will see."""
        return min(self.config.replay_capacity, self.episodes * self.env.horizon)

    def memory_bytes(self) -> int:
        """What the states of all seeds occupy."""
        leaves = jax.tree.leaves(self._state_shapes(sum(map(len, self._groups))))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def compile(self) -> None:
        """Compile the program, once for every size of group; done here so that threads do not all do it."""
        for size in {len(group) for group in self._groups} - self._compiled.keys():
            self._compiled[size] = self._run.lower(self._state_shapes(size), 0).compile()

    def chunks(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        is_decided: Callable[[Chunk], bool] = lambda chunk: False,
        pool: ThreadPoolExecutor | None = None,
    ) -> Iterator[Chunk]:
        """Train, yielding what happened in order of episodes.

        Args:
            should_stop: end early, after whole chunks; the last ones may then lack seeds that had not got so far.
            is_decided: is shown every chunk of a group of seeds as it arrives; says whether that group can end.
            pool: threads to share with other trainings; by default one for every core.
        """
        self.compile()
        arrived: dict[int, dict[int, EpisodeMetrics]] = {}
        running: dict[Future[EpisodeMetrics], tuple[int, int]] = {}
        num_chunks = -(-self.episodes // self.chunk_episodes)
        next_chunk = 0
        last_chunks = [num_chunks - 1] * len(self._groups)
        threads = pool or ThreadPoolExecutor(max_workers=available_cores())

        def submit(group: int, chunk: int) -> None:
            if chunk <= last_chunks[group] and not should_stop():
                running[threads.submit(self._advance, group, chunk)] = (group, chunk)

        try:
            for group in range(len(self._groups)):
                submit(group, 0)
            while running:
                # A short wait, so that a stop is seen while all groups are busy.
                done, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
                if should_stop():
                    for future in [f for f in running if f.cancel()]:
                        del running[future]
                for future in done & running.keys():
                    group, chunk = running.pop(future)
                    metrics = future.result()
                    arrived.setdefault(chunk, {})[group] = metrics
                    if is_decided(self._collect(chunk, {group: metrics})):
                        last_chunks[group] = chunk
                    submit(group, chunk + 1)
                while next_chunk in arrived and len(arrived[next_chunk]) == sum(
                    last >= next_chunk for last in last_chunks
                ):
                    yield self._collect(next_chunk, arrived.pop(next_chunk))
                    next_chunk += 1
        finally:
            for future in running:  # after an error, do not begin what was queued
                future.cancel()
            wait(running)
            if pool is None:
                threads.shutdown()
        for chunk in sorted(arrived):
            yield self._collect(chunk, arrived[chunk])

    def params(self) -> dict[int, Params]:
        """Online parameters of every seed that has begun, as numpy arrays."""
        result: dict[int, Params] = {}
        for seeds, state in zip(self._groups, self._states, strict=True):
            if state is not None:
                for index, seed in enumerate(seeds):
                    result[seed] = jax.tree.map(lambda x, i=index: np.asarray(x[i]), state.learner.params)
        return result

    def _advance(self, group: int, chunk: int) -> EpisodeMetrics:
        """Run one chunk of one group, in a worker thread; JAX lets go of the interpreter meanwhile."""
        state = self._states[group]
        if state is None:
            state = self._init(jnp.stack([jax.random.key(seed) for seed in self._groups[group]]))
        num_episodes = min(self.chunk_episodes, self.episodes - chunk * self.chunk_episodes)
        state, metrics = self._compiled[len(self._groups[group])](state, num_episodes)
        self._states[group] = state
        return jax.tree.map(lambda x: np.asarray(x)[:, :num_episodes], metrics)

    def _state_shapes(self, size: int) -> TrainState:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size))
        return jax.eval_shape(self._init, keys)

    def _collect(self, chunk: int, by_group: dict[int, EpisodeMetrics]) -> Chunk:
        groups = sorted(by_group)
        seeds = tuple(seed for group in groups for seed in self._groups[group])
        metrics = jax.tree.map(lambda *parts: np.concatenate(parts), *(by_group[group] for group in groups))
        return Chunk(chunk * self.chunk_episodes, seeds, metrics)


def available_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _steps_per_chunk(agent: Agent, config: AgentConfig) -> int:
    """Environment steps between two reports."""
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    # Three passes forward and two backward, a multiplication and an addition for every weight.
    flops = 10 * config.batch_size * sum(leaf.size for leaf in jax.tree.leaves(params))
    return min(MAX_STEPS_PER_CHUNK, int(FLOPS_PER_CHUNK / flops * config.learning_period_steps))


def make_program(env: Env, agent: Agent, config: AgentConfig, *, capacity: int, chunk_episodes: int):
    """The two compiled functions of a run.

    Returns:
        init: (keys [S]) -> states of S seeds.
        run: (states, number of episodes up to `chunk_episodes`) -> (states, metrics [S, chunk_episodes]); the
            states passed in are consumed.
    """

    def init(key: Array) -> TrainState:
        key, init_key, reset_key = jax.random.split(key, 3)
        _, obs = env.reset(reset_key)
        example = Transition(obs, jnp.int32(0), jnp.float32(0), jnp.float32(0), obs, jnp.zeros(config.num_heads))
        return TrainState(key, agent.init(init_key), make_ring(example, capacity), jnp.int32(0))

    def run(state: TrainState, num_episodes: Array) -> tuple[TrainState, EpisodeMetrics]:
        shapes = jax.eval_shape(lambda s: _run_episode(env, agent, config, s)[1], state)
        rows = jax.tree.map(lambda x: jnp.zeros((chunk_episodes, *x.shape), x.dtype), shapes)

        def body(index: Array, carry: tuple[TrainState, EpisodeMetrics]):
            state, row = _run_episode(env, agent, config, carry[0])
            return state, jax.tree.map(lambda many, one: many.at[index].set(one), carry[1], row)

        return jax.lax.fori_loop(0, num_episodes, body, (state, rows))

    vmapped_run = jax.vmap(run, in_axes=(_STATE_AXES, None), out_axes=(_STATE_AXES, 0))
    return jax.jit(jax.vmap(init, out_axes=_STATE_AXES)), jax.jit(vmapped_run, donate_argnums=0)


def _run_episode(
    env: Env, agent: Agent, config: AgentConfig, state: TrainState
) -> tuple[TrainState, EpisodeMetrics]:
    """Train for one episode, then play one by vote."""
    key, reset_key, begin_key, mask_key, step_key, greedy_key = jax.random.split(state.key, 6)
    actor = agent.begin(begin_key)
    episode_mask = agent.draw_mask(mask_key)

    def step(carry, key: Array):
        learner, replay, count, env_state, obs = carry
        act_key, env_key, mask_key, sample_key = jax.random.split(key, 4)
        action = agent.act(act_key, learner, actor, obs, agent.epsilon(count))
        env_state, out = env.step(env_key, env_state, action)
        discount = jnp.where(out.terminated, 0.0, jnp.float32(config.discount))
        mask = agent.draw_mask(mask_key) if config.mask_per == "step" else episode_mask
        replay = add(replay, Transition(obs, action, out.reward, discount, out.obs, mask))
        count = count + 1
        learner, metrics = jax.lax.cond(
            (count >= config.learning_start_steps) & (count % config.learning_period_steps == 0),
            lambda learner: agent.update(learner, sample(sample_key, replay, config.batch_size)),
            lambda learner: (learner, UpdateMetrics(*[jnp.float32(0)] * 3)),
            learner,
        )
        return (learner, replay, count, env_state, out.obs), (out.reward, metrics)

    carry = (state.learner, state.replay, state.step, *env.reset(reset_key))
    (learner, replay, count, env_state, _), (rewards, updates) = jax.lax.scan(
        step, carry, jax.random.split(step_key, env.horizon)
    )
    num_updates = learner.updates - state.learner.updates
    greedy_return, greedy_optimal = _play_greedily(greedy_key, env, agent, learner)
    metrics = EpisodeMetrics(
        episode_return=rewards.sum(),
        greedy_return=greedy_return,
        optimal=env.is_optimal(env_state, rewards.sum()),
        greedy_optimal=greedy_optimal,
        head=actor.head,
        epsilon=agent.epsilon(count),
        num_updates=num_updates,
        updates=jax.tree.map(lambda x: x.sum() / jnp.maximum(num_updates, 1), updates),
    )
    return TrainState(key, learner, replay, count), metrics


def _play_greedily(key: Array, env: Env, agent: Agent, learner: Learner) -> tuple[Array, Array]:
    """Return of one episode by majority vote, and whether it was optimal."""
    reset_key, step_key = jax.random.split(key)

    def step(carry, key: Array):
        env_state, obs = carry
        act_key, env_key = jax.random.split(key)
        env_state, out = env.step(env_key, env_state, agent.greedy(act_key, learner, obs))
        return (env_state, out.obs), out.reward

    (env_state, _), rewards = jax.lax.scan(step, env.reset(reset_key), jax.random.split(step_key, env.horizon))
    return rewards.sum(), env.is_optimal(env_state, rewards.sum())
