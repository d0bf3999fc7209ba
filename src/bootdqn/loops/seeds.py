"""One compiled program for several seeds side by side: groups of vmapped seeds, and a thread per core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.errors import UserError
from bootdqn.loops.protocol import Episode, Snapshot
from bootdqn.runs.arrays import named_arrays, restore
from bootdqn.runs.checkpoint import Checkpoint, ReplayRows
from bootdqn.types import Params

CHUNKS_BETWEEN_CHECKPOINTS = 60
"""Chunks that a core computes from one checkpoint to the next: about half a minute."""

State = TypeVar("State")
"""A pytree with all that a group of seeds needs to continue."""
Metrics = TypeVar("Metrics")
"""A NamedTuple of what episodes report, arrays [seeds, episodes], with an `episode_return`."""


class SeedProgram(NamedTuple, Generic[State, Metrics]):
    """A compiled training of some seeds, and how to read its states and metrics."""

    init: Any
    """Jitted (keys [S]) -> state of S seeds."""
    run: Any
    """Jitted (state, number of episodes up to `chunk_episodes`) -> (state, metrics [S, E]).

    The state that is passed in is consumed, and of the metrics those of the first episodes count.
    """
    agent: Any
    """The agent that is trained."""
    chunk_episodes: int
    """How many episodes at most pass between two reports."""
    horizon: int
    """Environment steps per episode."""
    columns: tuple[str, ...]
    """Columns of `metrics.csv` that its episodes have."""
    episode: Callable[[Metrics, tuple[int, int]], dict[str, Any]]
    """(metrics, index of seed and episode) -> the fields of `Episode` that only this program knows."""
    is_finite: Callable[[Metrics], NDArray[np.bool_]]
    """(metrics) -> whether each episode is free of values that are not finite [S, E]."""
    diverged: Callable[[str], str]
    """(which seed and episode are no longer finite) -> the message that says so, and what may help."""
    params: Callable[[State], Params]
    """(state) -> the online parameters of its seeds, with a leading axis [S]."""
    take_replay: Callable[[State], tuple[State, Any]]
    """(state) -> the state without the data of its replay, and that data: fields [S, capacity, ...], or None."""
    put_replay: Callable[[State, Any], State]
    """(state without, data) -> the state with the data of its replay."""
    replay_size: Callable[[State], tuple[int, int]]
    """(state) -> how many transitions were ever added to the replay of each seed, and its capacity."""


class Chunk(NamedTuple, Generic[Metrics]):
    """Consecutive episodes of some seeds, in order."""

    first_episode: int
    """How many episodes each seed had before."""
    seeds: tuple[int, ...]
    """Whose episodes these are."""
    metrics: Metrics
    """What the episodes report, as numpy arrays [seeds, episodes]."""


class SeedLoop(Generic[State, Metrics]):
    """Trains several seeds by one compiled program.

    Seeds are vmapped in groups, each group one call of the program, and groups share the processor's cores. On a
    CPU a group is one seed: vmapping gains little there (`bootdqn bench` shows it), and so what a seed learns does
    not depend on which others run beside it. On an accelerator all seeds are one group.
    """

    unit = "episodes"
    tables: Mapping[str, tuple[str, ...]] = {}

    def __init__(
        self,
        program: SeedProgram[State, Metrics],
        *,
        seeds: Sequence[int],
        episodes: int,
        group_size: int | None = None,
    ):
        """Prepare a training without compiling anything yet.

        Args:
            program: what is trained.
            seeds: one number per training, from which all its randomness derives.
            episodes: episodes per seed.
            group_size: how many seeds are vmapped, in place of what suits the processor.
        """
        if group_size is None:
            group_size = 1 if jax.default_backend() == "cpu" else len(seeds)
        self.program = program
        self.columns = program.columns
        self.episodes = episodes
        self.group_size = group_size
        self.end = -(-episodes // program.chunk_episodes)
        busy_cores = min(available_cores(), len(seeds))
        self.checkpoint_every = max(1, CHUNKS_BETWEEN_CHECKPOINTS * busy_cores // len(seeds))
        self.position = 0
        self._parts: dict[int, list[Metrics]] = {}
        self._num_episodes = 0
        self._seeds = tuple(seeds)
        self._groups = [tuple(seeds[i : i + group_size]) for i in range(0, len(seeds), group_size)]
        self._states: list[State | None] = [None] * len(self._groups)
        self._compiled: dict[int, Callable[[State, int], tuple[State, Metrics]]] = {}

    @property
    def progress(self) -> tuple[float, int]:
        """Episodes per seed so far, and environment steps over all seeds."""
        return self._num_episodes / len(self._seeds), self._num_episodes * self.program.horizon

    @property
    def metrics(self) -> dict[int, Metrics]:
        """What every episode so far has reported, per seed, as numpy arrays [E]."""
        for seed, parts in self._parts.items():
            self._parts[seed] = [jax.tree.map(lambda *xs: np.concatenate(xs), *parts)]
        return {seed: self._parts[seed][0] for seed in sorted(self._parts)}

    def memory_bytes(self) -> int:
        """Bytes that the states of all seeds occupy."""
        leaves = jax.tree.leaves(self._state_shapes(len(self._seeds)))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def compile(self) -> None:
        """Compile the program once per size of group, before threads would all do it."""
        for size in {len(group) for group in self._groups} - self._compiled.keys():
            self._compiled[size] = self.program.run.lower(self._state_shapes(size), 0).compile()

    def begin(self) -> None:
        """Compile; the state of a seed is made when its first chunk or a snapshot needs it."""
        self.compile()

    def advance(self, to: int, should_stop: Callable[[], bool]) -> Iterator[Sequence[Episode]]:
        """Train all seeds up to the chunk number `to`, or as far as the first of them when told to stop."""
        self.begin()
        for chunk in self.chunks(should_stop, first=self.position, end=to, even=True):
            for index, seed in enumerate(chunk.seeds):
                part = jax.tree.map(lambda x, i=index: x[i], chunk.metrics)
                self._parts.setdefault(seed, []).append(part)
            episodes = self._episodes(chunk)
            self.position += 1
            self._num_episodes += len(episodes)
            yield episodes
            for seed in chunk.seeds:
                self.require_finite_chunk(chunk, seed)

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
        """Train, and yield what happened in order of episodes.

        Args:
            should_stop: end early, after whole chunks; the last ones may then lack seeds that had not got so far.
            is_decided: is shown every chunk of a group of seeds as it arrives; says whether that group can end.
            pool: threads to share with other trainings; by default one per core.
            first: number of the chunk to begin with, which is how many all seeds have had.
            end: number of the chunk before which to end; by default all are run.
            even: when ending early, let all seeds get as far as the first of them.
        """
        self.compile()
        arrived: dict[int, dict[int, Metrics]] = {}
        running: dict[Future[Metrics], tuple[int, int]] = {}
        next_chunk = first
        last_chunks = [(self.end if end is None else end) - 1] * len(self._groups)
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

    def require_finite_chunk(self, chunk: Chunk[Metrics], seed: int, end: int | None = None) -> None:
        """Raise `UserError` if an episode of a seed, before the number `end`, has values that are not finite."""
        finite = self.program.is_finite(chunk.metrics)[chunk.seeds.index(seed)]
        bad = np.flatnonzero(~finite[: None if end is None else end - chunk.first_episode])
        if len(bad):
            where = f"of seed {seed} is no longer finite in episode {chunk.first_episode + bad[0] + 1}"
            raise UserError(self.program.diverged(where))

    def require_finite(self) -> None:
        """Do nothing: every chunk is checked as it arrives."""

    def new_rows(self) -> Mapping[str, list[tuple[Any, ...]]]:
        """Return nothing: a compiled loop fills no table but `metrics.csv`."""
        return {}

    def settle(self) -> None:
        """Do nothing: between two calls of `advance` nothing is under way."""

    def restart(self) -> None:
        """Do nothing: a state holds its environment."""

    def close(self) -> None:
        """Do nothing: threads end with `advance`."""

    def params(self) -> dict[int, Params]:
        """Online parameters per seed that has begun, as numpy arrays."""
        return self.by_seed(self.program.params)

    def by_seed(self, part: Callable[[State], Any]) -> dict[int, Any]:
        """A part of the state per seed that has begun, as numpy arrays."""
        return {
            seed: jax.tree.map(lambda x, i=index: np.asarray(x[i]), found)
            for seeds, state in zip(self._groups, self._states, strict=True)
            if state is not None and (found := part(state)) is not None
            for index, seed in enumerate(seeds)
        }

    def snapshot(self) -> Snapshot:
        """States of all groups, which are made where they have not begun, and the metrics so far."""
        for group, seeds in enumerate(self._groups):
            if self._states[group] is None:
                self._states[group] = self._init(seeds)
        states, replays = [], []
        for state in self._states:
            assert state is not None
            rest, data = self.program.take_replay(state)
            states.append(rest)
            if data is not None:
                replays.append(ReplayRows(*self.program.replay_size(state), _rows_of(data)))
        metrics = {str(seed): metrics for seed, metrics in self.metrics.items()}
        return Snapshot({}, named_arrays({"states": states, "metrics": metrics}), replays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of a training with the same seeds."""
        self.begin()
        self.position = checkpoint.step
        shapes = [self._state_shapes(len(group)) for group in self._groups]
        parts = [self.program.take_replay(shape) for shape in shapes]
        states = restore({"states": [rest for rest, _ in parts]}, checkpoint.arrays, "the checkpoint")["states"]
        if checkpoint.replays:
            data = [_data_of(fields, like) for fields, (_, like) in zip(checkpoint.replays, parts, strict=True)]
            states = [self.program.put_replay(*pair) for pair in zip(states, data, strict=True)]
        self._states = [jax.device_put(state) for state in states]
        if not checkpoint.step:
            return
        num_episodes = min(self.position * self.program.chunk_episodes, self.episodes)
        shapes = jax.eval_shape(self.program.run, self._state_shapes(1), 0)[1]
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_episodes,), x.dtype), shapes)
        expected = {"metrics": {str(seed): like for seed in self._seeds}}
        found = restore(expected, checkpoint.arrays, "the checkpoint")["metrics"]
        self._parts = {seed: [found[str(seed)]] for seed in self._seeds}
        self._num_episodes = num_episodes * len(self._seeds)

    def _init(self, seeds: Sequence[int]) -> State:
        return self.program.init(jnp.stack([jax.random.key(seed) for seed in seeds]))

    def _advance(self, group: int, chunk: int) -> Metrics:
        """Run one chunk of one group, in a worker thread; JAX lets go of the interpreter meanwhile."""
        state = self._states[group]
        if state is None:
            state = self._init(self._groups[group])
        size = self.program.chunk_episodes
        num_episodes = min(size, self.episodes - chunk * size)
        state, metrics = self._compiled[len(self._groups[group])](state, num_episodes)
        self._states[group] = state
        return jax.tree.map(lambda x: np.asarray(x)[:, :num_episodes], metrics)

    def _state_shapes(self, size: int) -> State:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size))
        return jax.eval_shape(self.program.init, keys)

    def _collect(self, chunk: int, by_group: dict[int, Metrics]) -> Chunk[Metrics]:
        groups = sorted(by_group)
        seeds = tuple(seed for group in groups for seed in self._groups[group])
        metrics = jax.tree.map(lambda *parts: np.concatenate(parts), *(by_group[group] for group in groups))
        return Chunk(chunk * self.program.chunk_episodes, seeds, metrics)

    def _returns(self, metrics: Any) -> NDArray[np.float32]:
        return metrics.episode_return

    def _episodes(self, chunk: Chunk[Metrics]) -> list[Episode]:
        """The episodes of a chunk, by number and then by seed."""
        returns, horizon = self._returns(chunk.metrics), self.program.horizon
        return [
            Episode(
                seed=seed,
                episode=(episode := chunk.first_episode + index + 1),
                step=episode * horizon,
                episode_return=returns[row, index],
                length=horizon,
                **self.program.episode(chunk.metrics, (row, index)),
            )
            for index in range(returns.shape[1])
            for row, seed in enumerate(chunk.seeds)
        ]


def gather_by_seed(
    chunks: Iterator[Chunk[Metrics]], observe: Callable[[Chunk[Metrics]], None]
) -> dict[int, Metrics]:
    """Join all chunks per seed; `observe` is shown each as it arrives."""
    parts: dict[int, list[Metrics]] = {}
    for chunk in chunks:
        for index, seed in enumerate(chunk.seeds):
            parts.setdefault(seed, []).append(jax.tree.map(lambda x, i=index: x[i], chunk.metrics))
        observe(chunk)
    return {seed: jax.tree.map(lambda *xs: np.concatenate(xs), *parts[seed]) for seed in sorted(parts)}


def _rows_of(data: Any) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Rows of a replay of several seeds [S, capacity, ...], positions first."""

    def rows(positions: np.ndarray) -> dict[str, np.ndarray]:
        return {name: np.asarray(field[:, positions]).swapaxes(0, 1) for name, field in data._asdict().items()}

    return rows


def _data_of(fields: Mapping[str, np.ndarray], like: Any) -> Any:
    """The replay of several seeds [S, capacity, ...] from rows with positions first; zeros where there is none."""
    return type(like)(
        **{
            name: np.ascontiguousarray(fields[name].swapaxes(0, 1))
            if fields
            else np.zeros(shape.shape, shape.dtype)
            for name, shape in like._asdict().items()
        }
    )


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
    """Turn the two functions of one seed into those of `SeedProgram`.

    Args:
        init: (key) -> state.
        run: (state, number of episodes) -> (state, metrics).
        state_axes: a state with 0 where seeds differ, and None where they share one value.
    """
    vmapped_run = jax.vmap(run, in_axes=(state_axes, None), out_axes=(state_axes, 0))
    return jax.jit(jax.vmap(init, out_axes=state_axes)), jax.jit(vmapped_run, donate_argnums=0)


def available_cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
