"""The agent on Gymnasium environments: slots that step in Python, and two compiled calls around them.

One tick: act in all slots (one call), learn from the tick before (one call, which runs while environments step),
step. Each slot follows its own head from the start of an episode to its end. Updates from pictures take as long as
many ticks: they run in a thread of their own while slots still act with a copy of the parameters from before, and
are waited for when the next update is due or an episode begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.core.config import AgentConfig
from bootdqn.envs.vector import Envs, play_randomly
from bootdqn.loops.learner import COLUMNS, HostLearner, Tick, result_of
from bootdqn.loops.protocol import Episode, Snapshot
from bootdqn.loops.slots import Slots, make_slot_policy, make_slots
from bootdqn.runs.arrays import named_arrays, restore
from bootdqn.runs.checkpoint import Checkpoint
from bootdqn.types import Params


class HostLoop:
    """Trains one agent on slots of a Gymnasium environment."""

    unit = "steps"
    columns = COLUMNS
    tables: Mapping[str, tuple[str, ...]] = {}

    def __init__(
        self,
        envs: Envs,
        config: AgentConfig,
        *,
        seed: int,
        steps: int,
        checkpoint_every: int,
        trunk: Callable[[Array], Any] | None = None,
    ):
        """Prepare a training without allocating anything yet.

        Args:
            envs: the slots.
            config: the agent's configuration.
            seed: the number from which all randomness derives.
            steps: environment steps of the training, over all slots.
            checkpoint_every: environment steps from one checkpoint to the next.
            trunk: as for `make_agent`.
        """
        self.envs = envs
        self.end = steps
        self.checkpoint_every = checkpoint_every
        self.learner = HostLearner(
            config,
            envs.observations,
            envs.num_actions,
            num_envs=envs.num_envs,
            seed=seed,
            steps=steps,
            trunk=trunk,
            before_last_update=self.settle,  # acting continues with this until the update is waited for
        )
        policy = make_slot_policy(self.learner.agent, config, envs.num_envs)
        self._make_slots = jax.jit(lambda key: make_slots(key, config, envs.num_envs))
        self._act, self._begin, self._hold = jax.jit(policy.act), jax.jit(policy.begin), jax.jit(policy.hold)
        self._act_held, self._draw = jax.jit(policy.act_held), jax.jit(policy.draw)
        self._redraws = config.redraw_probability > 0
        self._rounds = 0
        self._held_at = 0

    @property
    def position(self) -> int:
        """Environment steps so far, over all slots."""
        return self.learner.counters.step

    @property
    def progress(self) -> tuple[float, int]:
        """Environment steps so far, twice: they are what is counted."""
        return self.position, self.position

    def memory_bytes(self) -> int:
        """Bytes that parameters, optimizer and replay occupy."""
        return self.learner.memory_bytes()

    def begin(self) -> None:
        """Make initial parameters and an empty replay, and start episodes in all slots."""
        # One slot has the keys of a seed in the compiled loop.
        key, init_key, _ = jax.random.split(jax.random.key(self.learner.seed), 3)
        self.learner.begin(init_key, lambda: play_randomly(self.envs, self.learner.seed))
        self._slots: Slots = self._make_slots(key)
        self._reset()

    def advance(self, to: int, should_stop: Callable[[], bool]) -> Iterator[Sequence[Episode]]:
        """Step up to a number of environment steps, and yield after every step of all slots."""
        while self.position < to and not (should_stop() and self._is_settled):
            yield self.tick()
        if self.position >= self.end:
            self.learner.flush()

    def tick(self) -> list[Episode]:
        """Take one step in all slots, and begin the updates that are due; returns the episodes that ended."""
        learner, step = self.learner, self.learner.counters.step
        if learner.frames is None:
            params = learner.learned.learner.params
            action, draws, self._slots = self._act(params, self._slots, self._fresh, self._obs, step)
            learner.flush()
        else:
            learner.flush()
            if self._fresh.any():
                self._slots = self._begin(learner.learned.learner.params, self._slots, self._fresh)
                self.settle()
            self._held = result_of(self._held)
            action, draws, self._slots = self._act_held(self._held, self._slots, self._obs, step)
        if self._fresh.any() or self._redraws:
            self._heads = np.asarray(self._slots.head)
        actions = np.asarray(action)
        answer = self.envs.step(actions)
        self._actions.append(actions)
        tick = Tick(self._obs, self._fresh, self._heads, draws, actions, answer)
        self._obs, self._fresh = answer.obs, answer.fresh
        return learner.take_in(tick)

    @property
    def _is_settled(self) -> bool:
        """Whether the next actions come from no older parameters than those that a snapshot holds."""
        learner = self.learner
        return self._held_at == learner.updates_begun or bool(learner.pending_updates) or bool(self._fresh.any())

    def settle(self) -> None:
        """Let the next actions come from the newest parameters."""
        learner = self.learner
        if learner.frames is not None:
            slots = self._slots
            self._held: Params | Future[Params] = learner.when_updated(lambda params: self._hold(params, slots))
        self._held_at = learner.updates_begun

    def restart(self) -> None:
        """Start new episodes in all slots, whose environments depend on nothing from before.

        Environments cannot be asked for their state, so a checkpoint is a moment at which they have none: this is
        done there, whether or not the training is ever resumed from it.
        """
        self.learner.flush()
        self.learner.close_frames(self._obs)
        self._reset()

    def _reset(self) -> None:
        self._actions: list[NDArray[np.int32]] = []
        self._obs = self.envs.reset(self._env_seeds())
        self.learner.require_finite_values(self._obs, np.zeros(self.envs.num_envs, np.float32), None)
        self._fresh = np.ones(self.envs.num_envs, bool)
        self._heads = np.zeros(self.envs.num_envs, np.int32)
        self.learner.forget_slots()
        self._rounds += 1

    def _env_seeds(self) -> list[int]:
        """Seeds of all slots for the episodes since the last restart."""
        sequence = np.random.SeedSequence([self.learner.seed, self._rounds])
        return [int(word) >> 1 for word in sequence.generate_state(self.envs.num_envs)]

    def new_rows(self) -> Mapping[str, list[tuple[Any, ...]]]:
        """Return nothing: a host loop fills no table but `metrics.csv`."""
        return {}

    def params(self) -> dict[int, Params]:
        """Online parameters of the one seed, as numpy arrays."""
        return {self.learner.seed: self.learner.params}

    def require_finite(self) -> None:
        """Raise `UserError` if parameters are no longer finite."""
        self.learner.require_finite()

    def snapshot(self) -> Snapshot:
        """What the learner needs, who acts, and the actions since the last restart, which rebuild environments."""
        info, arrays, replays = self.learner.snapshot()
        actions = np.array(self._actions, np.int32).reshape(-1, self.envs.num_envs)
        arrays = {**arrays, **named_arrays({"slots": self._slots}), "actions": actions}
        return Snapshot({**info, "rounds": self._rounds}, arrays, replays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a snapshot: the actions since the last restart, taken again, lead environments there."""
        self.learner.restore(checkpoint)
        like = {"slots": jax.eval_shape(self._make_slots, jax.random.key(0))}
        self._slots = restore(like, checkpoint.arrays, "the checkpoint")["slots"]
        self._rounds = checkpoint.info["rounds"] - 1
        self._reset()
        pending, draws = checkpoint.info["pending"], self._draw(self._slots)
        heads = np.asarray(self._slots.head)
        for row in checkpoint.arrays["actions"]:
            before, fresh, answer = self._obs, self._fresh, self.envs.step(row)
            self.learner.take_again(Tick(before, fresh, heads, draws, row, answer), pending)
            self._obs, self._fresh = answer.obs, answer.fresh
        self._actions = list(checkpoint.arrays["actions"])
        self._heads = heads
        self.settle()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
