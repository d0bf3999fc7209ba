"""Learns from what slots play: counts their episodes, fills replay and updates the agent.

Who plays is not its business: the host loop steps environments of its own, and the cluster loop is sent what
actors have played. Both hand over one tick (one step of all slots) at a time. Transitions are in a ring inside the
compiled program; pictures, which would not fit there, are in `FrameReplay`, and every update gets a batch of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AgentConfig
from bootdqn.core.masks import draw_noise
from bootdqn.envs.spaces import Observations
from bootdqn.errors import UserError, require
from bootdqn.loops.protocol import Episode, Snapshot, diverged
from bootdqn.loops.slots import Draws
from bootdqn.loops.updates import Learned, make_initial, make_learn, make_update, no_sums
from bootdqn.replay.frames import LEAST_TICKS, FrameBatch, FrameReplay
from bootdqn.replay.host_memory import keep_large_blocks
from bootdqn.replay.priorities import draw_rows, with_new
from bootdqn.replay.ring import Ring
from bootdqn.runs.arrays import named_arrays, restore
from bootdqn.runs.checkpoint import Checkpoint, ReplayRows
from bootdqn.types import HostStep, Params, Transition, UpdateMetrics

COLUMNS = (
    *("seed", "episode", "step", "slot", "return", "length", "terminated"),
    *("head", "epsilon", "updates", "loss", "q_mean", "q_spread"),
)
"""Columns of `metrics.csv` that loops with slots have."""
_SAMPLING = 2
"""Sets apart the seeds of batches from those of environments and evaluations."""


class Tick(NamedTuple):
    """One step of all slots; arrays [S, ...]."""

    obs: NDArray[Any]
    """Observations that were acted on; of pictures, only the newest frame is needed."""
    fresh: NDArray[np.bool_]
    """Whether an observation begins an episode."""
    heads: NDArray[np.int32]
    """The heads that were followed."""
    draws: Draws
    """Bootstrap weights, and the key of the batches."""
    actions: NDArray[np.int32]
    """The actions that were taken."""
    step: HostStep
    """What environments answered."""


class Counters(NamedTuple):
    """Where a training stands, as numbers of the host."""

    step: int
    """Environment steps that were stored."""
    episodes: int
    """Episodes that have ended."""
    updates: int
    """Updates that were due so far."""
    updates_read: int
    """How many of these had been reported with an episode."""
    head_steps: tuple[int, ...]
    """Environment steps per head."""


class HostLearner:
    """The learning half of a loop with slots."""

    def __init__(
        self,
        config: AgentConfig,
        observations: Observations,
        num_actions: int,
        *,
        num_envs: int,
        seed: int,
        steps: int,
        trunk: Callable[[Array], Any] | None = None,
        before_last_update: Callable[[], None] = lambda: None,
    ):
        """Prepare to learn without allocating anything yet.

        Args:
            config: the agent's configuration.
            observations: what slots observe.
            num_actions: A.
            num_envs: the number of slots.
            seed: the number from which all randomness derives.
            steps: environment steps that are planned; replay never holds more.
            trunk: as for `make_agent`.
            before_last_update: is called before the last update of a tick, where updates are from pictures.
        """
        if observations.encoding.kind == "pictures":
            keep_large_blocks()  # here, as nothing has been computed before there is an agent
        self.agent = make_agent(config, observations.encoding, num_actions, trunk)
        self.config = config
        self.seed = seed
        self.capacity = max(config.batch_size, min(config.replay_capacity, steps))
        require(
            not config.sums_rewards or config.n_steps * num_envs <= self.capacity,
            f"n_steps {config.n_steps} in {num_envs} environments need a replay of "
            f"{config.n_steps * num_envs} steps, got {self.capacity}; give more steps or replay_capacity",
        )
        self.frames: FrameReplay | None = None
        self.updates_begun = 0
        """Updates from pictures that were begun in this process."""
        self.counters = Counters(0, 0, 0, 0, (0,) * config.num_heads)
        self._num_envs = num_envs
        self._num_states = observations.encoding.num_states
        self._bounds = observations.bounds
        self._committed = config.acting == "committed_head"
        self._before_last_update = before_last_update
        self._pending: Tick | None = None
        self._pending_updates = 0
        self._returns = np.zeros(num_envs)
        self._rewards: list[list[float]] = [[] for _ in range(num_envs)]
        """Rewards of the current episodes as they are learned from, where values are bounded by them."""
        self._lengths = np.zeros(num_envs, int)
        if observations.encoding.kind == "pictures":
            # Rows that are not acted on take room, too: as if every episode had a hundred steps.
            room = min(config.replay_capacity, steps + steps // 100 + LEAST_TICKS * num_envs)
            self.frames = FrameReplay(
                room, num_slots=num_envs, num_heads=config.num_heads, reward_per_head=config.reward_noise > 0
            )
            self.capacity = self.frames.capacity
            # XLA carries out what one thread asks for one after the other; what two ask for, side by side.
            self._updater = ThreadPoolExecutor(1)
        self._init = jax.jit(make_initial(self.agent, config, observations, self.capacity, num_envs))
        self._learn = jax.jit(make_learn(self.agent, config), donate_argnums=0)
        self._update = jax.jit(make_update(self.agent, config), donate_argnums=0)
        self._draw = jax.jit(partial(draw_rows, num_rows=2 * config.batch_size))
        self._with_new = jax.jit(with_new, donate_argnums=0)
        self._with_return = jax.jit(self.agent.note_return, donate_argnums=0)

    @property
    def learned(self) -> Learned:
        """The result of all updates that were begun; waits for the last of them."""
        self._learned = learned = result_of(self._learned)
        return learned

    @learned.setter
    def learned(self, learned: Learned) -> None:
        self._learned: Learned | Future[Learned] = learned

    @property
    def params(self) -> Params:
        """The online parameters, as numpy arrays."""
        return jax.tree.map(np.asarray, self.learned.learner.params)

    @property
    def pending_updates(self) -> int | None:
        """Updates that are due for the last tick; None where it has been learned from."""
        return None if self._pending is None else self._pending_updates

    def memory_bytes(self) -> int:
        """Bytes that parameters, optimizer and replay occupy."""
        leaves = jax.tree.leaves(jax.eval_shape(self._init, jax.random.key(0)))
        in_frames = self.frames.memory_bytes if self.frames else 0
        return in_frames + sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def begin(self, key: Array, play_randomly: Callable[[], NDArray[Any]]) -> None:
        """Make initial parameters and an empty replay.

        Args:
            key: the random key of the parameters.
            play_randomly: returns observations of random play, for a prior that has to know their range.
        """
        learned = self._init(key)
        if (self.config.prior_scale > 0 or self.config.scale_inputs) and not self._num_states:
            observations = play_randomly()
            finite = np.isfinite(observations.reshape(len(observations), -1)).all(axis=1)
            if not finite.all():
                example = np.array2string(observations[np.argmin(finite)], threshold=8)
                raise UserError(f"an observation of random play is not finite: {example}")
            params = jax.jit(self.agent.fit)(learned.learner.params, observations, *self._bounds)
            learned = learned._replace(learner=learned.learner._replace(params=params))
        self.learned = learned

    def take_in(self, tick: Tick) -> list[Episode]:
        """Count a tick, which becomes what there is to learn from; returns the episodes that ended."""
        step = tick.step
        self.require_finite_values(step.next_obs, step.reward, step.obs if step.fresh.any() else None)
        self._pending, self._pending_updates = tick, self._count_steps(tick)
        self._count_returns(step)
        return self._ended(tick)

    def take_again(self, tick: Tick, pending_updates: int | None) -> None:
        """Count a tick that was learned from before a checkpoint, or for which so many updates are pending."""
        self._count_returns(tick.step)
        self._forget_ended(tick.step)
        self._pending = None if pending_updates is None else tick
        self._pending_updates = pending_updates or 0

    def forget_slots(self, slots: slice | None = None) -> None:
        """Let episodes of some slots, or of all, count from zero."""
        which = slice(None) if slots is None else slots
        self._returns[which], self._lengths[which] = 0, 0
        for rewards in self._rewards[which]:
            rewards.clear()

    def flush(self) -> None:
        """Learn from the last tick, if that has not been done."""
        if self._pending is None:
            return
        tick, self._pending = self._pending, None
        step = tick.step
        no_future = step.terminated | step.life_lost
        if self.frames is not None:
            self._add_frames(self.frames, tick, no_future)
            for index in range(self.counters.updates - self._pending_updates, self.counters.updates):
                self.update_from_frames(self.frames, index)
            return
        self.learned = self._learn(
            self.learned,
            tick.draws,
            tick.obs,
            tick.fresh,
            tick.actions,
            step.reward,
            no_future,
            step.terminated | step.truncated,
            step.next_obs,
            step.valid,
            self._pending_updates,
        )

    def update_from_frames(self, frames: FrameReplay, index: int) -> None:
        """Begin the update with the number `index`, which alone decides what is sampled."""
        rng = np.random.default_rng([self.seed, index, _SAMPLING])
        draw = self._by_priority if self.config.prioritised else None
        batch = jax.device_put(frames.sample(rng, self.config.batch_size, self.config.n_steps, draw))
        if index == self.counters.updates - 1:
            self._before_last_update()
        self._learned = self._updater.submit(_carry_out, self._update, self._learned, batch)
        self.updates_begun += 1

    def _by_priority(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw places of rows in proportion to their priorities, which the update before this one changes."""
        key = jax.random.key(rng.integers(2**31))
        return rng.permutation(np.asarray(self._draw(key, self.learned.priorities), np.int64))

    def when_updated(self, function: Callable[[Params], Any]) -> Future[Any]:
        """A future of a function of the parameters that come out of all updates that were begun from pictures."""
        learned = self._learned
        # Computed where updates are, so that the next one need not wait for another thread to wake up.
        return self._updater.submit(lambda: function(result_of(learned).learner.params))

    def wait(self) -> None:
        """Wait for the last update."""
        jax.block_until_ready(self.learned)

    def close_frames(self, obs: NDArray[Any]) -> None:
        """Note the last observations of episodes that are broken off, where replay is of pictures."""
        if self.frames is not None:
            self._give_priorities(self.frames, np.zeros(self._num_envs, bool))
            self.frames.close(obs[:, -1])

    def require_finite(self) -> None:
        """Raise `UserError` if learning has produced something that is not a number."""
        leaves = [self.learned.sums, self.learned.learner.params]
        self._require_converging([np.sum(np.asarray(leaf), dtype=float) for leaf in jax.tree.leaves(leaves)])

    def require_finite_values(
        self, obs: NDArray[Any], reward: NDArray[np.float32], following: NDArray[Any] | None
    ) -> None:
        """Raise `UserError` before anything that is not a number gets into replay."""
        for what, values in (("observation", obs), ("reward", reward), ("observation after a reset", following)):
            if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
                slot = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0])
                raise UserError(
                    f"the environment in slot {slot} returned {'an' if what[0] == 'o' else 'a'} {what} that is "
                    f"not finite after step {self.counters.step}: {np.array2string(values[slot], threshold=8)}"
                )

    def snapshot(self) -> Snapshot:
        """Return parameters, counters and replay, in the form that checkpoints hold."""
        learned = self.learned
        arrays = named_arrays(_without_replay(learned))
        if self.frames is not None:
            fields, added = self.frames.rows, self.frames.added
        else:
            assert learned.replay is not None
            fields, added = learned.replay.data._asdict(), int(learned.replay.added)

        def rows(positions: np.ndarray) -> dict[str, np.ndarray]:
            return {name: np.asarray(field[positions]) for name, field in fields.items()}

        info = {"counters": self.counters._asdict(), "pending": self.pending_updates}
        replay = ReplayRows(added, self.capacity, rows, compress=self.frames is not None)
        return Snapshot(info, arrays, [replay])

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a snapshot, but for its pending tick: see `take_again`."""
        counters = checkpoint.info["counters"]
        self.counters = Counters(**{**counters, "head_steps": tuple(counters["head_steps"])})
        shapes: Learned = jax.eval_shape(self._init, jax.random.key(0))
        found = restore(_without_replay(shapes), checkpoint.arrays, "the checkpoint")
        ring = self._restored_ring(shapes.replay, checkpoint.replays[0], checkpoint.added[0])
        self.learned = jax.device_put(Learned(replay=ring, **found))

    def _restored_ring(self, like: Ring | None, fields: Mapping[str, np.ndarray], added: int) -> Ring | None:
        """Put what a checkpoint holds back into replay; returns it if it belongs into the compiled program."""
        held = len(next(iter(fields.values()))) if fields else self.capacity
        require(
            held == self.capacity,
            f"config.json was changed: replay held {held} steps and would now hold {self.capacity}",
        )
        if self.frames is not None:
            if fields:
                self.frames.rows = restore(self.frames.rows, fields, "the checkpoint")
            self.frames.added = added
            return None
        assert like is not None
        empty = {name: np.zeros(shape.shape, shape.dtype) for name, shape in like.data._asdict().items()}
        data: dict[str, Any] = {**(fields or empty)}
        return Ring(Transition(**data), np.int32(added))  # pyright: ignore[reportArgumentType]

    def _add_frames(self, frames: FrameReplay, tick: Tick, no_future: NDArray[np.bool_]) -> None:
        noise = draw_noise(tick.draws.key, self.config.reward_noise, tick.draws.mask.shape)
        self._give_priorities(frames, tick.step.valid)
        frames.add(
            tick.obs[:, -1],
            fresh=tick.fresh,
            action=tick.actions,
            reward=self.config.stored_reward(tick.step.reward, noise),
            discount=np.where(no_future, 0.0, self.config.discount),
            mask=np.asarray(tick.draws.mask),
            acted=tick.step.valid,
        )

    def _give_priorities(self, frames: FrameReplay, acted: NDArray[np.bool_]) -> None:
        """Give the rows that are added next the priority of new ones, where an action follows."""
        if self.config.prioritised:
            places = np.arange(frames.added, frames.added + self._num_envs) % frames.capacity
            learned = self.learned
            self.learned = learned._replace(priorities=self._with_new(learned.priorities, places, acted))

    def _count_steps(self, tick: Tick) -> int:
        """Count what a tick stores, and return how many updates are due for it."""
        before, after = self.counters.step, self.counters.step + int(tick.step.valid.sum())
        period = self.config.learning_period_steps
        # Two ticks make the first transition whose next observation is in replay of pictures, and as many as
        # rewards are summed over the first that leaves the window.
        ticks = 2 if self.frames else self.config.n_steps if self.config.sums_rewards else 0
        start = max(self.config.learning_start_steps, ticks * self._num_envs)
        due = max(0, after // period - max(before, start - 1) // period)
        head_steps = np.array(self.counters.head_steps)
        np.add.at(head_steps, tick.heads, tick.step.valid)
        self.counters = self.counters._replace(
            step=after, updates=self.counters.updates + due, head_steps=tuple(head_steps.tolist())
        )
        return due

    def _count_returns(self, step: HostStep) -> None:
        self._returns += np.where(step.valid, step.reward, 0)
        if self.config.bound_values:
            learned_from = self.config.learned_reward(step.reward)
            for slot in np.flatnonzero(step.valid):
                self._rewards[slot].append(float(learned_from[slot]))
        self._lengths += step.valid

    def _forget_ended(self, step: HostStep) -> None:
        ended = step.terminated | step.truncated
        for slot in np.flatnonzero(ended):
            self.forget_slots(slice(slot, slot + 1))

    def _ended(self, tick: Tick) -> list[Episode]:
        """The episodes that ended with a tick, counted and reported."""
        ended = np.flatnonzero(tick.step.terminated | tick.step.truncated)
        if not len(ended):
            return []
        self.flush()
        num_updates = self.counters.updates - self.counters.updates_read
        means = [float(x) / max(num_updates, 1) for x in self.learned.sums]
        self.learned = self.learned._replace(sums=no_sums())
        self._require_converging(means)
        episodes = []
        for slot in ended:
            self._note_return(tick.heads[slot], int(slot))
            self.counters = self.counters._replace(
                episodes=self.counters.episodes + 1, updates_read=self.counters.updates
            )
            updates = {} if episodes or not num_updates else dict(zip(UpdateMetrics._fields, means, strict=True))
            episodes.append(
                Episode(
                    seed=self.seed,
                    episode=self.counters.episodes,
                    step=self.counters.step,
                    episode_return=float(self._returns[slot]),
                    length=int(self._lengths[slot]),
                    slot=int(slot),
                    terminated=int(tick.step.terminated[slot]),
                    head=int(tick.heads[slot]) if self._committed else None,
                    epsilon=float(self.agent.epsilon(jnp.int32(self.counters.step), jnp.int32(tick.heads[slot]))),
                    num_updates=num_updates if not episodes else 0,
                    **updates,
                )
            )
        self._forget_ended(tick.step)
        return episodes

    def _note_return(self, head: np.int32, slot: int) -> None:
        """Note how an episode went, if heads are drawn or values are bounded by it."""
        if self.config.head_candidates > 1 or self.config.bound_values:
            learned = self.learned
            rest = best_rest(self._rewards[slot], self.config.discount)
            total = np.float32(self._returns[slot])
            params = self._with_return(learned.learner.params, head, total, np.float32(rest))
            self.learned = learned._replace(learner=learned.learner._replace(params=params))

    def _require_converging(self, values: Sequence[float]) -> None:
        if not np.isfinite(values).all():
            what = f"the loss is no longer finite at step {self.counters.step}"
            raise UserError(diverged(what, self.config.learning_rate))


def best_rest(rewards: Sequence[float], discount: float) -> float:
    """Compute the largest discounted sum of an episode's rewards from one of its steps on, at least 0."""
    best = rest = 0.0
    for reward in reversed(rewards):
        rest = reward + discount * rest
        best = max(best, rest)
    return best


def _without_replay(learned: Learned) -> dict[str, Any]:
    return {name: value for name, value in learned._asdict().items() if name != "replay"}


def result_of(value: Any) -> Any:
    """A value, or what a future of it will return."""
    return value.result() if isinstance(value, Future) else value


def _carry_out(update: Any, learned: Learned | Future[Learned], batch: FrameBatch) -> Learned:
    return update(result_of(learned), batch)
