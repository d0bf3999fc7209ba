"""The agent on Gymnasium environments: slots that step in Python, and two compiled calls around them.

One tick: act in all slots (one call), learn from the tick before (one call, which runs while environments step),
step. Each slot follows its own head from the start of an episode to its end. Transitions are in a ring inside the
compiled program; pictures, which would not fit there, in `FrameReplay`, and a batch of them goes to every update.
Updates from pictures take as long as many ticks: they run in a thread of their own while slots go on acting with
a copy of the parameters from before, and are waited for when the next is due or an episode begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.agent import AgentConfig, make_agent, make_network
from bootdqn.envs.host import Envs
from bootdqn.errors import UserError
from bootdqn.loops.slots import Draws, Slots, make_acting, make_slots
from bootdqn.replay.device import Ring, add_some, make_ring, sample
from bootdqn.replay.frames import LEAST_TICKS, STACK, FrameBatch, FrameReplay
from bootdqn.types import Agent, HostStep, Learner, Params, Transition, UpdateMetrics


class Learned(NamedTuple):
    """What learning changes, and what it reports."""

    learner: Learner
    replay: Ring | None
    """None where pictures are in a `FrameReplay`."""
    sums: UpdateMetrics
    """Over the updates since they were last read."""


class Episode(NamedTuple):
    """One training episode that has ended."""

    step: int
    """Environment steps of the run so far."""
    episode: int
    """Its number, from 1."""
    slot: int
    head: int
    length: int
    episode_return: float
    terminated: bool
    """Whether it ended in a state with no future; else it was cut short."""
    epsilon: float
    num_updates: int
    """Since the episode that ended before it; the next three are means over them."""
    loss: float
    q_mean: float
    q_spread: float


class Counters(NamedTuple):
    """Where a training stands, as numbers of the host."""

    step: int
    """Environment steps that were stored."""
    episodes: int
    updates: int
    """That were asked for so far."""
    updates_read: int
    """Of those, how many had been reported."""
    rounds: int
    """How often all slots were reset."""
    head_steps: tuple[int, ...]
    """Steps that every head has collected."""


_SAMPLING = 2
"""Sets apart the seeds of batches from those of environments and evaluations."""


class _Tick(NamedTuple):
    """What there is to learn from."""

    drawn: Slots | Draws
    """What is drawn for it, or the slots that decide it."""
    obs: NDArray[Any]
    fresh: NDArray[np.bool_]
    """Whether `obs` begins an episode."""
    actions: NDArray[np.int32]
    step: HostStep
    num_updates: int
    """That are due."""


class HostTraining:
    """Trains one agent on slots of a Gymnasium environment."""

    def __init__(
        self,
        envs: Envs,
        config: AgentConfig,
        *,
        seed: int,
        steps: int,
        trunk: Callable[[Array], Any] | None = None,
        overlap: bool = True,
    ):
        """Allocate nothing yet.

        Args:
            envs: the slots.
            config: the agent's.
            seed: of everything.
            steps: environment steps that are planned; replay never holds more.
            trunk: as for `make_network`.
            overlap: learn from a tick while environments carry out the next. Actions then come from parameters
                that are one tick old, or one update where updates are from pictures.
        """
        self.envs = envs
        self.config = config
        self.seed = seed
        self.overlap = overlap
        network = make_network(config, envs.observations.encoding, envs.num_actions, trunk)
        self.agent = make_agent(config, network, envs.num_actions)
        self.capacity = max(config.batch_size, min(config.replay_capacity, steps))
        self.frames: FrameReplay | None = None
        if envs.observations.encoding.kind == "pictures":
            # Rows that are not acted on take room, too: as if every episode had a hundred steps.
            room = min(config.replay_capacity, steps + steps // 100 + LEAST_TICKS * envs.num_envs)
            self.frames = FrameReplay(room, num_slots=envs.num_envs, num_heads=config.num_heads)
            self.capacity = self.frames.capacity
            # XLA carries out what one thread asks for one after the other; what two ask for, side by side.
            self._updater = ThreadPoolExecutor(1)
        self._program = _make_program(self.agent, config, envs, None if self.frames else self.capacity)
        self.make_initial = self._program.init
        self.counters = Counters(0, 0, 0, 0, 0, (0,) * config.num_heads)

    def memory_bytes(self) -> int:
        """What parameters, optimizer and replay occupy."""
        leaves = jax.tree.leaves(jax.eval_shape(self.make_initial, jax.random.key(0)))
        in_frames = self.frames.memory_bytes if self.frames else 0
        return in_frames + sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    @property
    def learned(self) -> Learned:
        """Of all updates that were begun; waits for the last of them."""
        self._learned = learned = _result(self._learned)
        return learned

    @learned.setter
    def learned(self, learned: Learned) -> None:
        self._learned: Learned | Future[Learned] = learned

    @property
    def params(self) -> Params:
        """The online parameters, as numpy arrays."""
        return jax.tree.map(np.asarray, self.learned.learner.params)

    @property
    def settled(self) -> bool:
        """Whether `learned` has all parameters that are still needed: the next actions come from no older ones."""
        return not self._lags or bool(self.pending_updates) or bool(self._fresh.any())

    def settle(self) -> None:
        """Let the next actions come from the newest parameters."""
        if self.frames is not None:
            # Asked for where updates are, so that the next one need not wait for this thread to wake up.
            self._held = self._updater.submit(_hold, self._program.hold, self._learned, self.slots)
        self._lags = False

    _lags = False
    """Whether what is held for acting lacks an update."""

    def begin(self) -> None:
        """Make parameters and an empty replay, and start episodes in all slots."""
        self.learned, self.slots = self.make_initial(jax.random.key(self.seed))
        self._reset()

    def restart(self) -> None:
        """Start fresh episodes in all slots, whose environments depend on nothing from before.

        Environments cannot be asked for their state, so a checkpoint is a moment at which they have none: this is
        done there, whether or not the training is ever resumed from it.
        """
        self.flush()
        if self.frames:
            self.frames.close(self._obs[:, -1])
        self._reset()

    def _reset(self) -> None:
        self.actions: list[NDArray[np.int32]] = []
        """Since then, for `restore`."""
        self._start_episodes()
        self._returns = np.zeros(self.envs.num_envs)
        self._lengths = np.zeros(self.envs.num_envs, int)
        self.heads = np.zeros(self.envs.num_envs, int)
        self.counters = self.counters._replace(rounds=self.counters.rounds + 1)

    def _start_episodes(self) -> None:
        """Begin fresh ones in all slots."""
        self._obs = self.envs.reset(self._env_seeds())
        self._require_finite(self._obs, np.zeros(self.envs.num_envs, np.float32), None)
        self._fresh = np.ones(self.envs.num_envs, bool)

    @property
    def pending_updates(self) -> int | None:
        """Updates that are due for the last tick; None where it has been learned from."""
        return None if self._pending is None else self._pending.num_updates

    def restore(
        self,
        learned: Learned,
        slots: Slots,
        counters: Counters,
        actions: NDArray[np.int32],
        pending_updates: int | None,
    ) -> None:
        """Go on from where another training stood.

        Args:
            learned: its parameters and replay, unless that is in `frames`.
            slots: who acted.
            counters: its own.
            actions: since its last `restart` [T, S]; taken again, they bring environments to where they were.
            pending_updates: its own.
        """
        self.learned, self.slots = learned, slots
        self.counters = counters._replace(rounds=counters.rounds - 1)
        self._reset()
        for row in actions:
            before, fresh, step = self._obs, self._fresh, self.envs.step(row)
            self._count(step)
            self._move_on(step)
            self._pending = _Tick(slots, before, fresh, row, step, pending_updates or 0)
        if pending_updates is None:
            self._pending = None
        self.actions = list(actions)
        self.heads = np.asarray(slots.head)
        self.settle()

    def tick(self) -> list[Episode]:
        """One step in all slots, and the updates that are due; returns the episodes that ended."""
        if self.frames is None:
            params = self.learned.learner.params
            action, self.slots = self._program.act(params, self.slots, self._fresh, self._obs, self.counters.step)
        else:
            self.flush()
            if self._fresh.any():
                self.slots = self._program.begin(self.slots, self._fresh)
                self.settle()
            self._held = _result(self._held)
            action, self.slots = self._program.act_held(self._held, self.slots, self._obs, self.counters.step)
        if self.overlap:
            self.flush()
        if self._fresh.any():
            self.heads = np.asarray(self.slots.head)
        actions = np.asarray(action)
        step = self.envs.step(actions)
        self.actions.append(actions)
        return self._take_in(self.slots, actions, step)

    def _take_in(self, drawn: Slots | Draws, actions: NDArray[np.int32], step: HostStep) -> list[Episode]:
        """Count a tick, which becomes what there is to learn from; returns the episodes that ended."""
        self._require_finite(step.next_obs, step.reward, step.obs if step.fresh.any() else None)
        self._pending = _Tick(drawn, self._obs, self._fresh, actions, step, self._count_steps(step))
        if not self.overlap:
            self.flush()
        self._count(step)
        episodes = self._ended(step)
        self._move_on(step)
        return episodes

    _pending: _Tick | None = None

    def flush(self) -> None:
        """Learn from the last tick, if that has not been done."""
        if self._pending is None:
            return
        tick, self._pending = self._pending, None
        if self.frames is not None:
            self._learn_from_frames(self.frames, tick)
            return
        step = tick.step
        self.learned = self._program.learn(
            self.learned,
            tick.drawn,
            tick.obs,
            tick.actions,
            step.reward,
            step.terminated | step.life_lost,
            step.next_obs,
            step.valid,
            tick.num_updates,
        )

    def _learn_from_frames(self, frames: FrameReplay, tick: _Tick) -> None:
        no_future = tick.step.terminated | tick.step.life_lost
        frames.add(
            tick.obs[:, -1],
            fresh=tick.fresh,
            action=tick.actions,
            reward=tick.step.reward,
            discount=np.where(no_future, 0.0, self.config.discount),
            mask=np.asarray(self._program.draw_masks(tick.drawn)),
            acted=tick.step.valid,
        )
        for index in range(self.counters.updates - tick.num_updates, self.counters.updates):
            self.update_from_frames(frames, index)
        if not self.overlap and self._lags:
            self.settle()

    def update_from_frames(self, frames: FrameReplay, index: int) -> None:
        """Begin the update with the number `index`, which alone decides what is sampled."""
        rng = np.random.default_rng([self.seed, index, _SAMPLING])
        batch = jax.device_put(frames.sample(rng, self.config.batch_size))
        if self.overlap and index == self.counters.updates - 1:
            self.settle()  # acting goes on with this until the update is waited for
        self._learned = self._updater.submit(_update, self._program.update, self._learned, batch)
        self._lags = True

    def _count_steps(self, step: HostStep) -> int:
        """Count what a tick stored, and return how many updates are due for it."""
        before, after = self.counters.step, self.counters.step + int(step.valid.sum())
        period = self.config.learning_period_steps
        # Two ticks make the first transition whose next observation is in replay.
        start = max(self.config.learning_start_steps, 2 * self.envs.num_envs if self.frames else 0)
        due = max(0, after // period - max(before, start - 1) // period)
        head_steps = np.array(self.counters.head_steps)
        np.add.at(head_steps, self.heads, step.valid)
        self.counters = self.counters._replace(
            step=after, updates=self.counters.updates + due, head_steps=tuple(head_steps.tolist())
        )
        return due

    def _count(self, step: HostStep) -> None:
        """Add up returns and lengths."""
        self._returns += np.where(step.valid, step.reward, 0)
        self._lengths += step.valid

    def _move_on(self, step: HostStep) -> None:
        """Act on what came of a step next; what has ended counts from zero again."""
        ended = step.terminated | step.truncated
        self._returns[ended], self._lengths[ended] = 0, 0
        self._obs, self._fresh = step.obs, step.fresh

    def _ended(self, step: HostStep) -> list[Episode]:
        """The episodes that ended with a step, counted and reported."""
        ended = np.flatnonzero(step.terminated | step.truncated)
        if not len(ended):
            return []
        self.flush()
        num_updates = self.counters.updates - self.counters.updates_read
        means = [float(x) / max(num_updates, 1) for x in self.learned.sums]
        self.learned = self.learned._replace(sums=_no_sums())
        self._require_converging(means)
        episodes = []
        for slot in ended:
            self.counters = self.counters._replace(
                episodes=self.counters.episodes + 1, updates_read=self.counters.updates
            )
            episodes.append(
                Episode(
                    step=self.counters.step,
                    episode=self.counters.episodes,
                    slot=int(slot),
                    head=int(self.heads[slot]),
                    length=int(self._lengths[slot]),
                    episode_return=float(self._returns[slot]),
                    terminated=bool(step.terminated[slot]),
                    epsilon=float(self.agent.epsilon(jnp.int32(self.counters.step))),
                    num_updates=num_updates if not episodes else 0,
                    loss=means[0],
                    q_mean=means[1],
                    q_spread=means[2],
                )
            )
        return episodes

    def require_finite_parameters(self) -> None:
        """Raise `UserError` if learning has produced something that is not a number."""
        leaves = [self.learned.sums, self.learned.learner.params]
        self._require_converging([np.sum(np.asarray(leaf), dtype=float) for leaf in jax.tree.leaves(leaves)])

    def _require_converging(self, values: Sequence[float]) -> None:
        if not np.isfinite(values).all():
            raise UserError(
                f"training diverged: the loss is no longer finite at step {self.counters.step}; a smaller "
                f"learning rate (now {self.config.learning_rate:g}) or the huber loss may help"
            )

    def _env_seeds(self) -> list[int]:
        """Seeds of all slots for this round."""
        sequence = np.random.SeedSequence([self.seed, self.counters.rounds])
        return [int(word) >> 1 for word in sequence.generate_state(self.envs.num_envs)]

    def _require_finite(
        self, obs: NDArray[Any], reward: NDArray[np.float32], following: NDArray[Any] | None
    ) -> None:
        """Stop before anything that is not a number gets into replay."""
        for what, values in (("observation", obs), ("reward", reward), ("observation after a reset", following)):
            if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
                slot = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0])
                raise UserError(
                    f"the environment in slot {slot} returned {'an' if what[0] == 'o' else 'a'} {what} that is "
                    f"not finite after step {self.counters.step}: {np.array2string(values[slot], threshold=8)}"
                )


def _result(value: Any) -> Any:
    """What is there, or will be."""
    return value.result() if isinstance(value, Future) else value


def _update(update: Any, learned: Learned | Future[Learned], batch: FrameBatch) -> Learned:
    return update(_result(learned), batch)


def _hold(hold: Any, learned: Learned | Future[Learned], slots: Slots) -> Params:
    return hold(_result(learned).learner.params, slots)


class _Program(NamedTuple):
    """The compiled functions of a training."""

    init: Any
    """(key) -> learned, slots."""
    act: Any
    """(params, slots, fresh, obs, step) -> actions, slots; where replay is a ring."""
    learn: Any
    """(learned, what is drawn, a tick's transitions, number of updates) -> learned; where replay is a ring."""
    begin: Any
    """(slots, fresh) -> slots; this and the rest where replay is a `FrameReplay`."""
    hold: Any
    """(params, slots) -> what is held of them for acting."""
    act_held: Any
    """(what is held, slots, obs, step) -> actions, slots."""
    update: Any
    """(learned, batch) -> learned."""
    draw_masks: Any
    """(what is drawn) -> masks [S, K] of a tick's transitions."""


def _make_program(agent: Agent, config: AgentConfig, envs: Envs, capacity: int | None) -> _Program:
    """Compile for a ring of `capacity`, or for None of it."""
    acting = make_acting(agent, config, envs.num_envs)

    def init(key: Array) -> tuple[Learned, Slots]:
        # One slot has the keys of a seed in the compiled loop.
        key, init_key, _ = jax.random.split(key, 3)
        obs, scalar = jnp.zeros(envs.observations.shape, envs.observations.dtype), jnp.float32(0)
        example = Transition(obs, jnp.int32(0), scalar, scalar, obs, jnp.zeros(config.num_heads))
        ring = None if capacity is None else make_ring(example, capacity)
        return Learned(agent.init(init_key), ring, _no_sums()), make_slots(key, config, envs.num_envs)

    def draws(drawn: Slots | Draws) -> Draws:
        return acting.draw(drawn) if isinstance(drawn, Slots) else drawn

    draw_by_step = jax.jit(lambda slots: acting.draw(slots).mask)

    def draw_masks(drawn: Slots | Draws) -> Array:
        needs_draw = isinstance(drawn, Slots) and config.mask_per == "step"
        return draw_by_step(drawn) if needs_draw else drawn.mask

    def learn(
        learned: Learned,
        drawn: Slots | Draws,
        obs: Array,
        action: Array,
        reward: Array,
        terminated: Array,
        next_obs: Array,
        valid: Array,
        num_updates: Array,
    ) -> Learned:
        assert learned.replay is not None
        mask, first_key = draws(drawn)
        discount = jnp.where(terminated, 0.0, jnp.float32(config.discount))
        replay = add_some(learned.replay, Transition(obs, action, reward, discount, next_obs, mask), valid)

        def update(index: Array, state: tuple[Learner, UpdateMetrics]) -> tuple[Learner, UpdateMetrics]:
            learner, sums = state
            key = jax.lax.cond(index == 0, lambda: first_key, lambda: jax.random.fold_in(first_key, index))
            learner, metrics = agent.update(learner, sample(key, replay, config.batch_size))
            return learner, jax.tree.map(jnp.add, sums, metrics)

        learner, sums = jax.lax.fori_loop(0, num_updates, update, (learned.learner, learned.sums))
        return Learned(learner, replay, sums)

    def update(learned: Learned, batch: FrameBatch) -> Learned:
        frames, action, reward, discount, mask = map(jnp.asarray, batch)
        transitions = Transition(frames[:, :STACK], action, reward, discount, frames[:, 1:], mask)
        learner, metrics = agent.update(learned.learner, transitions)
        return Learned(learner, None, jax.tree.map(jnp.add, learned.sums, metrics))

    return _Program(
        init=jax.jit(init),
        act=jax.jit(acting.act),
        learn=jax.jit(learn, donate_argnums=0),
        begin=jax.jit(acting.begin),
        hold=jax.jit(acting.hold),
        act_held=jax.jit(acting.act_held),
        update=jax.jit(update, donate_argnums=0),
        draw_masks=draw_masks,
    )


def _no_sums() -> UpdateMetrics:
    return UpdateMetrics(*[np.float32(0)] * 3)  # pyright: ignore[reportArgumentType]
