"""Replay of pictures in memory of the host: every frame is kept once, and stacks are rebuilt when sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.errors import require
from bootdqn.replay.host_memory import zeros_apart

STACK = 4
"""Number of frames in one observation."""
LEAST_TICKS = STACK + 3
"""Ticks after which a transition can be sampled in any case: three of them may be unusable, namely the end of an
episode, the end of one that a checkpoint broke off, and the newest row."""


class FrameBatch(NamedTuple):
    """A batch of transitions [B, ...]; over one step, five frames hold both observations of each."""

    frames: NDArray[np.uint8]
    """Frames [B, 5 or 8, height, width]: the first four are the observation, the last four the next one."""
    action: NDArray[np.int32]
    """Actions taken [B]."""
    reward: NDArray[np.float32]
    """Rewards of the actions [B], or sums of those of several steps; with noise, one per head [B, K]."""
    discount: NDArray[np.float32]
    """Gamma to the power of the steps, or 0 where there is no future [B]."""
    mask: NDArray[np.float32]
    """Bootstrap weights [B, K]."""
    places: NDArray[np.int32]
    """Where in replay the transitions begin [B]."""


class FrameReplay:
    """The last observations of every slot, with the actions taken and their rewards.

    A row is an observation, of which only the newest frame is kept. Rows of one tick lie side by side, so the row
    before and after another of the same slot is S rows away. A row that ends an episode has been observed but not
    acted on: it is there for the transition that leads to it, and never sampled itself. Nor is a row that a new
    episode follows, since its next observation was not seen.
    """

    def __init__(
        self,
        capacity: int,
        *,
        num_slots: int,
        num_heads: int,
        shape: tuple[int, int] = (84, 84),
        reward_per_head: bool = False,
    ):
        """Plan room for `capacity` rows; nothing is allocated before it is used.

        Args:
            capacity: the number of rows, rounded down to a multiple of the slots.
            num_slots: the number of slots S.
            num_heads: the number of heads K.
            shape: the height and the width of a frame.
            reward_per_head: whether every head has a reward of its own.
        """
        least = LEAST_TICKS * num_slots
        require(
            capacity >= least,
            f"replay_capacity must be at least {least} with {num_slots} environments, got {capacity}",
        )
        self.capacity = capacity // num_slots * num_slots
        self.num_slots = num_slots
        self.added = 0
        """How many rows were ever added."""
        self._fields = {
            "frame": ((self.capacity, *shape), np.uint8),
            "action": ((self.capacity,), np.int32),
            "reward": ((self.capacity, num_heads) if reward_per_head else (self.capacity,), np.float32),
            "discount": ((self.capacity,), np.float32),
            "mask": ((self.capacity, num_heads), np.float32),
            "depth": ((self.capacity,), np.uint8),  # frames of its episode before it, up to those of a stack
            "acted": ((self.capacity,), np.bool_),
        }

    @cached_property
    def rows(self) -> dict[str, NDArray[Any]]:
        """All rows by the name of the field [capacity, ...]."""
        return {name: zeros_apart(shape, dtype) for name, (shape, dtype) in self._fields.items()}

    @property
    def memory_bytes(self) -> int:
        """Bytes that a full replay occupies."""
        return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self._fields.values())

    def add(
        self,
        frame: NDArray[np.uint8],
        *,
        fresh: NDArray[np.bool_],
        action: NDArray[np.integer],
        reward: NDArray[np.floating],
        discount: NDArray[np.floating],
        mask: NDArray[np.floating],
        acted: NDArray[np.bool_],
    ) -> None:
        """Add the observations of one tick.

        Args:
            frame: the newest frame of each slot [S, height, width].
            fresh: whether that frame is the first of an episode [S].
            action: the action taken [S].
            reward: the reward of the action [S], or one per head [S, K].
            discount: gamma, or 0 where there is no future [S].
            mask: bootstrap weights [S, K].
            acted: whether the action was carried out [S]; False where an episode had ended.
        """
        place = self._tick(self.added)
        depth = np.minimum(self.rows["depth"][self._tick(self.added - self.num_slots)] + 1, STACK - 1)
        new = {
            "frame": frame,
            "action": action,
            "reward": reward,
            "discount": discount,
            "mask": mask,
            "depth": np.where(fresh, 0, depth),
            "acted": acted,
        }
        for name, values in new.items():
            self.rows[name][place] = values
        self.added += self.num_slots

    def close(self, frame: NDArray[np.uint8]) -> None:
        """Add the last observations of episodes that are broken off, so that the steps to them can be sampled."""
        nothing = np.zeros(self.num_slots, np.float32)
        self.add(
            frame,
            fresh=np.zeros(self.num_slots, bool),
            action=nothing.astype(np.int32),
            reward=np.zeros((self.num_slots, *self.rows["reward"].shape[1:]), np.float32),
            discount=nothing,
            mask=np.zeros((self.num_slots, self.rows["mask"].shape[1]), np.float32),
            acted=nothing.astype(bool),
        )

    def sample(
        self,
        rng: np.random.Generator,
        batch_size: int,
        n_steps: int = 1,
        draw: Callable[[np.random.Generator], NDArray[np.int64]] | None = None,
    ) -> FrameBatch:
        """Draw a batch with replacement from all transitions whose frames are all there.

        Args:
            rng: the random generator.
            batch_size: the number of transitions B.
            n_steps: steps whose rewards are summed, as far as the episode and replay have them.
            draw: (random generator) -> places where transitions may begin, some of which are used; None to draw
                all alike.
        """
        oldest, end = max(0, self.added - self.capacity), self.added - self.num_slots
        chosen = np.empty(0, np.int64)
        while len(chosen) < batch_size:
            # The oldest row of all is at the place that is written to next.
            rows = (
                rng.integers(oldest, end, 2 * batch_size)
                if draw is None
                else oldest + (draw(rng) - oldest) % self.capacity
            )
            depth = self.rows["depth"][rows % self.capacity].astype(np.int64)
            whole = (rows - depth * self.num_slots >= oldest) & (rows < end)
            chosen = np.concatenate([chosen, rows[whole & self._goes_on(rows)]])
        chosen = chosen[:batch_size]
        return self._gather(chosen) if n_steps == 1 else self._gather_sums(chosen, n_steps)

    def _goes_on(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether the transitions that begin at `rows` [B] were made, and their next observations seen."""
        following = self.rows["depth"][(rows + self.num_slots) % self.capacity] > 0
        return following & self.rows["acted"][rows % self.capacity]

    def _gather(self, rows: NDArray[np.int64]) -> FrameBatch:
        """Gather the transitions that begin at `rows` [B], counted from the first row that was ever added."""
        places = rows % self.capacity
        frames = self._frames(rows, np.arange(1 - STACK, 2))
        fields = (self.rows[name][places] for name in ("action", "reward", "discount", "mask"))
        return FrameBatch(frames, *fields, places=places.astype(np.int32))

    def _gather_sums(self, rows: NDArray[np.int64], n_steps: int) -> FrameBatch:
        """Gather transitions over several steps that begin at `rows` [B]."""
        reward = np.zeros_like(self.rows["reward"][rows % self.capacity])
        discount = np.ones(len(rows), np.float32)
        going, last = np.ones(len(rows), bool), rows
        for _ in range(n_steps):
            place = last % self.capacity
            factor = np.where(going, discount, 0)
            reward += factor.reshape(-1, *[1] * (reward.ndim - 1)) * self.rows["reward"][place]
            discount *= np.where(going, self.rows["discount"][place], 1)
            last = np.where(going, last + self.num_slots, last)
            # The newest row has no transition yet; what was at its place after it is the oldest.
            going = going & (discount > 0) & (last < self.added - self.num_slots)
            going[going] = self._goes_on(last[going])
        stack = np.arange(1 - STACK, 1)
        frames = np.concatenate([self._frames(rows, stack), self._frames(last, stack)], axis=1)
        places = rows % self.capacity
        fields = self.rows["action"][places], reward, discount, self.rows["mask"][places]
        return FrameBatch(frames, *fields, places=places.astype(np.int32))

    def _frames(self, rows: NDArray[np.int64], offsets: NDArray[np.int_]) -> NDArray[np.uint8]:
        """Gather the frames around `rows` [B]; those before the episode are black."""
        frames = self.rows["frame"][(rows[:, None] + offsets * self.num_slots) % self.capacity]
        frames[-offsets > self.rows["depth"][rows % self.capacity].astype(np.int64)[:, None]] = 0
        return frames

    def _tick(self, row: int) -> slice:
        """Find the places of a tick's rows, given the number of the first."""
        first = row % self.capacity
        return slice(first, first + self.num_slots)
