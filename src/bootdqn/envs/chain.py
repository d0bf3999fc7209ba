"""The N-chain, with a small reward near the start and a large one at the far end (paper, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.errors import require, require_known
from bootdqn.tabular.mdp import MDP, Shape, require_small
from bootdqn.types import Encoding, Step

LEFT_REWARD = 0.001
RIGHT_REWARD = 1.0
START = 1
"""The index of s_2, where episodes start."""


def draw_right_actions(length: int, seed: int) -> NDArray[np.int64]:
    """Draw which of two actions means right in every state [N]; longer chains continue shorter ones."""
    return np.random.default_rng(seed).integers(0, 2, length)


def describe_row(length: int, horizon: int, moves: str = "", *, scrambled: bool) -> str:
    """Describe the task on a row of states; `moves` says how moves can fail."""
    return (
        f"A row of {length} states, {horizon} steps per episode. The far end pays 1 per step, the near end almost "
        f"nothing.{moves}{' Which action is right is drawn per state.' if scrambled else ''}"
    )


class ChainState(NamedTuple):
    """The position of the agent and the number of steps so far."""

    position: Array
    """The index of the state, from 0."""
    time: Array
    """The number of steps in this episode."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """States s_1 ... s_N in a row; the agent starts at s_2 and walls stop it.

    The optimum goes right at every step and collects 10. Observations are positions 0 ... N-1.
    """

    length: int
    """The number of states N."""
    horizon_offset: int = 8
    """An episode lasts N plus this many actions."""
    reward_on: Literal["action", "entry"] = "action"
    """Whether rewards are for actions (left at s_1, right at s_N) or for entering or staying in s_1 and s_N."""
    features: Literal["thermometer", "one_hot"] = "thermometer"
    """How a position becomes the input of the network."""
    time_limit: Literal["truncated", "terminated"] = "truncated"
    """Whether the last state of an episode keeps its future value, as it has no clock, or has none."""
    scrambled: bool = False
    """Whether the action that means right is drawn per state, so that no policy generalises between states."""
    scramble_seed: int = 0
    """The seed of that draw."""

    def __post_init__(self):
        require(self.length >= 4, f"a chain needs at least 4 states, got {self.length}; try chain:10")
        require(
            self.horizon >= self.length - 1,
            f"horizon_offset {self.horizon_offset} leaves {self.horizon} actions: too few to reach the end",
        )
        require(self.length <= 2**20, f"a chain may have at most 2**20 states, got {self.length}")
        require(self.scramble_seed >= 0, f"scramble_seed must not be negative, got {self.scramble_seed}")
        require_known("reward_on", self.reward_on, ("action", "entry"))
        require_known("features", self.features, ("thermometer", "one_hot"))
        require_known("time_limit", self.time_limit, ("truncated", "terminated"))

    @property
    def num_actions(self) -> int:
        """The number of actions, which is two: left and right."""
        return 2

    @property
    def horizon(self) -> int:
        """The number of actions per episode."""
        return self.length + self.horizon_offset

    @property
    def encoding(self) -> Encoding:
        """The encoding of a position as the input of the network [N]."""
        return Encoding(self.features, self.length)

    @property
    def solved_return(self) -> float:
        """The optimal return: of going right, which is 10 by default, or of going left in chains of thousands."""
        on_entry = int(self.reward_on == "entry")
        right = RIGHT_REWARD * (self.horizon - (self.length - 1 - START) + on_entry)
        return max(right, LEFT_REWARD * (self.horizon - START + on_entry))

    def is_optimal(self, state: ChainState, episode_return: Array) -> Array:
        """Return whether the episode had the optimal return."""
        del state
        return episode_return >= self.solved_return

    def regret(self, state: ChainState, episode_return: Array) -> Array:
        """Return the difference of the return to the optimum, as nothing is random."""
        del state
        return self.solved_return - episode_return

    @property
    def right_actions(self) -> tuple[int, ...]:
        """The action that means right in every state [N]."""
        if not self.scrambled:
            return (1,) * self.length
        return tuple(draw_right_actions(self.length, self.scramble_seed).tolist())

    @property
    def state_shape(self) -> tuple[int]:
        """The states lie in a row of N."""
        return (self.length,)

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Whether an agent can reach each state [N]: always."""
        return np.ones(self.length, bool)

    @property
    def way_to_reward(self) -> NDArray[np.int64]:
        """The states on the way of an agent that always goes right."""
        return np.arange(START, self.length)

    @property
    def description(self) -> str:
        """The task in a few sentences for people."""
        return describe_row(self.length, self.horizon, scrambled=self.scrambled)

    @property
    def mdp(self) -> MDP:
        """The exact Markov decision process."""
        require_small(Shape(self.length, self.num_actions, self.horizon))
        goes_right = np.array(self.right_actions)[:, None] == np.arange(self.num_actions)
        moved, rewards = map(np.asarray, self._outcome(jnp.arange(self.length)[:, None], jnp.asarray(goes_right)))
        return MDP(
            transitions=np.eye(self.length)[moved],
            rewards=rewards,
            reward_std=np.zeros_like(rewards),
            start=START,
            horizon=self.horizon,
        )

    def reset(self, key: Array) -> tuple[ChainState, Array]:
        """Start an episode at s_2."""
        del key
        position = jnp.int32(START)
        return ChainState(position, jnp.int32(0)), position

    def step(self, key: Array, state: ChainState, action: Array) -> tuple[ChainState, Step]:
        """Move one state left or right."""
        del key
        goes_right = action == jnp.asarray(self.right_actions)[state.position]
        moved, reward = self._outcome(state.position, goes_right)
        time = state.time + 1
        over = time >= self.horizon
        ends = over & (self.time_limit == "terminated")
        return ChainState(moved, time), Step(moved, reward, ends, over & ~ends)

    def _outcome(self, position: Array, goes_right: Array) -> tuple[Array, Array]:
        """Return the next positions and the rewards, given positions and whether the agent goes right."""
        last = self.length - 1
        moved = jnp.clip(position + jnp.where(goes_right, 1, -1), 0, last)
        if self.reward_on == "action":
            at_left, at_right = (position == 0) & ~goes_right, (position == last) & goes_right
        else:
            at_left, at_right = moved == 0, moved == last
        reward = jnp.where(at_right, RIGHT_REWARD, jnp.where(at_left, LEFT_REWARD, 0.0))
        return moved, reward.astype(jnp.float32)
