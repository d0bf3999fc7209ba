"""Trainings of several seeds side by side: groups of vmapped seeds, a thread a core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

State = TypeVar("State")
"""A pytree: all that a group of seeds needs to go on."""
Metrics = TypeVar("Metrics")
"""A pytree of what episodes report, arrays [seeds, episodes]; it has an `episode_return`."""


class Chunk(NamedTuple, Generic[Metrics]):
    """Consecutive episodes of some seeds, in order."""

    first_episode: int
    seeds: tuple[int, ...]
    metrics: Metrics
    """numpy arrays [seeds, episodes]."""


class SeedTraining(Generic[State, Metrics]):
    """Trains several seeds by one compiled program.

    Seeds are vmapped in groups, each group one call of the program, and groups share the processor's cores. On a
    CPU a group is one seed: vmapping gains little there (`bootdqn bench` shows it), and so a seed's results do
    not depend on which others run beside it. On an accelerator all seeds are one group.
    """

    def __init__(
        self,
        init: Any,
        run: Any,
        *,
        seeds: Sequence[int],
        episodes: int,
        group_size: int | None,
        chunk_episodes: int,
    ):
        """Compile nothing yet.

        Args:
            init: jitted (keys [S]) -> states of S seeds.
            run: jitted (states, number of episodes up to `chunk_episodes`) -> (states, metrics [S, E]); the states
                passed in are consumed, and of the metrics those of the first episodes count.
            seeds: each the one number that all randomness of a training derives from.
            episodes: of every seed.
            group_size: how many seeds are vmapped, in place of what suits the processor.
            chunk_episodes: how many episodes at most pass between two reports.
        """
        if group_size is None:
            group_size = 1 if jax.default_backend() == "cpu" else len(seeds)
        self.episodes = episodes
        self.group_size = group_size
        self.chunk_episodes = chunk_episodes
        self._init, self._run = init, run
        self._groups = [tuple(seeds[i : i + group_size]) for i in range(0, len(seeds), group_size)]
        self._states: list[State | None] = [None] * len(self._groups)
        self._compiled: dict[int, Callable[[State, int], tuple[State, Metrics]]] = {}

    def memory_bytes(self) -> int:
        """What the states of all seeds occupy."""
        leaves = jax.tree.leaves(self._state_shapes(sum(map(len, self._groups))))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def compile(self) -> None:
        """Compile the program, once for every size of group; done here so that threads do not all do it."""
        for size in {len(group) for group in self._groups} - self._compiled.keys():
            self._compiled[size] = self._run.lower(self._state_shapes(size), 0).compile()

    @property
    def num_chunks(self) -> int:
        """In a whole training."""
        return -(-self.episodes // self.chunk_episodes)

    def chunks(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        is_decided: Callable[[Chunk[Metrics]], bool] = lambda chunk: False,
        pool: ThreadPoolExecutor | None = None,
        *,
        first: int = 0,
        end: int | None = None,
        even: bool = False,
    ) -> Iterator[Chunk[Metrics]]:
        """Train, yielding what happened in order of episodes.

        Args:
            should_stop: end early, after whole chunks; the last ones may then lack seeds that had not got so far.
            is_decided: is shown every chunk of a group of seeds as it arrives; says whether that group can end.
            pool: threads to share with other trainings; by default one for every core.
            first: number of the chunk to begin with: how many all seeds have had.
            end: number of the chunk before which to end; by default all.
            even: when ending early, let all seeds get as far as the first of them.
        """
        self.compile()
        arrived: dict[int, dict[int, Metrics]] = {}
        running: dict[Future[Metrics], tuple[int, int]] = {}
        next_chunk = first
        last_chunks = [(self.num_chunks if end is None else end) - 1] * len(self._groups)
        threads = pool or ThreadPoolExecutor(max_workers=available_cores())
        stopping = False

        def submit(group: int, chunk: int) -> None:
            if chunk <= last_chunks[group] and (even or not should_stop()):
                running[threads.submit(self._advance, group, chunk)] = (group, chunk)

        try:
            for group in range(len(self._groups)):
                submit(group, first)
            while running:
                # A short wait, so that a stop is seen while all groups are busy.
                done, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
                if should_stop() and not stopping:
                    stopping = True
                    waiting = {future: running.pop(future) for future in list(running) if future.cancel()}
                    if even:
                        reached = [chunk for _, chunk in running.values()] + [max(arrived, default=first - 1)]
                        last_chunks = [min(last, max(reached)) for last in last_chunks]
                        for group, chunk in waiting.values():
                            submit(group, chunk)
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

    def states(self) -> list[State]:
        """Of every group; those that have not begun are made."""
        for group, seeds in enumerate(self._groups):
            if self._states[group] is None:
                self._states[group] = self._init(jnp.stack([jax.random.key(seed) for seed in seeds]))
        return [state for state in self._states if state is not None]

    def state_shapes(self) -> list[State]:
        """The same, without their numbers."""
        return [self._state_shapes(len(group)) for group in self._groups]

    def set_states(self, states: Sequence[State]) -> None:
        """Go on from states of another training with the same seeds."""
        self._states = [jax.device_put(state) for state in states]

    def _advance(self, group: int, chunk: int) -> Metrics:
        """Run one chunk of one group, in a worker thread; JAX lets go of the interpreter meanwhile."""
        state = self._states[group]
        if state is None:
            state = self._init(jnp.stack([jax.random.key(seed) for seed in self._groups[group]]))
        num_episodes = min(self.chunk_episodes, self.episodes - chunk * self.chunk_episodes)
        state, metrics = self._compiled[len(self._groups[group])](state, num_episodes)
        self._states[group] = state
        return jax.tree.map(lambda x: np.asarray(x)[:, :num_episodes], metrics)

    def _state_shapes(self, size: int) -> State:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size))
        return jax.eval_shape(self._init, keys)

    def _collect(self, chunk: int, by_group: dict[int, Metrics]) -> Chunk[Metrics]:
        groups = sorted(by_group)
        seeds = tuple(seed for group in groups for seed in self._groups[group])
        metrics = jax.tree.map(lambda *parts: np.concatenate(parts), *(by_group[group] for group in groups))
        return Chunk(chunk * self.chunk_episodes, seeds, metrics)


def repeat_episode(
    run_episode: Callable[[State], tuple[State, Metrics]], state: State, num_episodes: Array, most: int
) -> tuple[State, Metrics]:
    """Run up to `most` episodes inside a compiled program.

    Returns:
        The last state, and metrics [most], of which those of the first `num_episodes` count.
    """
    shapes = jax.eval_shape(lambda s: run_episode(s)[1], state)
    rows = jax.tree.map(lambda x: jnp.zeros((most, *x.shape), x.dtype), shapes)

    def body(index: Array, carry: tuple[State, Metrics]):
        state, row = run_episode(carry[0])
        return state, jax.tree.map(lambda many, one: many.at[index].set(one), carry[1], row)

    return jax.lax.fori_loop(0, num_episodes, body, (state, rows))


def vmap_seeds(
    init: Callable[[Array], State], run: Callable[[State, Array], tuple[State, Metrics]], state_axes: State
) -> tuple[Any, Any]:
    """The two functions of `SeedTraining` from those of one seed.

    Args:
        init: (key) -> state.
        run: (state, number of episodes) -> (state, metrics).
        state_axes: a state with 0 where seeds differ, and None where they share one value.
    """
    vmapped_run = jax.vmap(run, in_axes=(state_axes, None), out_axes=(state_axes, 0))
    return jax.jit(jax.vmap(init, out_axes=state_axes)), jax.jit(vmapped_run, donate_argnums=0)


def available_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
