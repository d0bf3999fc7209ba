"""bsuite's DeepSea, a grid whose rewarding corner is reached only by a whole episode of right moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.errors import require
from bootdqn.tabular.mdp import MDP, Shape, require_small
from bootdqn.types import Encoding, Step

MOVE_COST = 0.01
"""The cost of a whole episode of right moves."""


class DeepSeaState(NamedTuple):
    """The position of the agent, and whether it has left the path to the reward."""

    row: Array
    """The row, from 0 at the top."""
    column: Array
    """The column, from 0 at the left."""
    bad: Array
    """Whether the agent went left on the diagonal, which bsuite calls a bad episode."""
    regret: Array
    """The expected loss of the actions so far."""


@dataclass(frozen=True, kw_only=True)
class DeepSea:
    """An N x N grid in which every action leads one row down, and one column left or right.

    All numbers are those of bsuite's `deep_sea` and `deep_sea_stochastic`. The agent starts in the top left
    corner; right in the bottom right corner pays 1, and every move right costs 0.01 / N. Which action means right
    is drawn per cell. Observations are cells, row by row; after the last step comes N², which is encoded as zeros.
    """

    size: int
    """The number of rows and columns N."""
    stochastic: bool = False
    """Whether right moves fail with probability 1/N, and the rewards of the bottom corners are noisy."""
    mapping_seed: int = 42
    """The seed of the draw of which action means right."""

    def __post_init__(self):
        require(2 <= self.size <= 2**10, f"a deep sea needs 2 to 2**10 rows, got {self.size}; try deep_sea:10")
        require(0 <= self.mapping_seed < 2**32, f"mapping_seed must be 0 to 2**32 - 1, got {self.mapping_seed}")

    @property
    def num_actions(self) -> int:
        """The number of actions, which is two."""
        return 2

    @property
    def horizon(self) -> int:
        """The number of actions per episode, which is one per row."""
        return self.size

    @property
    def encoding(self) -> Encoding:
        """The encoding of a cell as the input of the network [N²]."""
        return Encoding("one_hot", self.size**2)

    @property
    def solved_return(self) -> float:
        """The mean return of an optimal episode, which goes right until the wind has led off the diagonal."""
        return float(self._diagonal_values[0])

    @property
    def _success(self) -> float:
        """The probability that a right move moves right."""
        return 1 - 1 / self.size if self.stochastic else 1.0

    @property
    def _diagonal_values(self) -> NDArray[np.float64]:
        """The optimal value of every cell of the diagonal [N]; that of all other cells is zero."""
        values = np.ones(self.size)
        for row in range(self.size - 2, -1, -1):
            values[row] = self._success * (values[row + 1] - MOVE_COST / self.size)
        return values - MOVE_COST / self.size

    @property
    def right_actions(self) -> NDArray[np.int_]:
        """The action that means right in every cell [N, N]."""
        # Only the legacy generator repeats the draw of bsuite.
        return np.random.RandomState(self.mapping_seed).binomial(1, 0.5, [self.size, self.size])

    @property
    def state_shape(self) -> tuple[int, int]:
        """The states are the cells of a grid [N, N]."""
        return self.size, self.size

    @property
    def way_to_reward(self) -> NDArray[np.int64]:
        """The states on the way of an agent that always goes right, if no move fails: the diagonal."""
        return np.arange(self.size) * (self.size + 1)

    @property
    def description(self) -> str:
        """The task in a few sentences for people."""
        chance = ", where right can fail" if self.stochastic else ""
        return (
            f"Each of {self.size} steps leads a row down and a column left or right{chance}. Only right, "
            f"{self.size} times in a row, leads to the reward; every move right costs a little."
        )

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Whether the agent can reach each cell [N, N]; those above the diagonal are out of reach."""
        return np.tri(self.size, dtype=bool)

    def is_optimal(self, state: DeepSeaState, episode_return: Array) -> Array:
        """Return whether an episode that ended in `state` never left the path to the reward by choice."""
        del episode_return
        return ~state.bad

    def regret(self, state: DeepSeaState, episode_return: Array) -> Array:
        """Return the expected loss of the actions of the episode."""
        del episode_return
        return state.regret

    @property
    def mdp(self) -> MDP:
        """The exact Markov decision process; what follows the last row does not matter."""
        n, cost = self.size, MOVE_COST / self.size
        require_small(Shape(n**2, self.num_actions, n))
        transitions, rewards = np.zeros((n**2, 2, n**2)), np.zeros((n**2, 2))
        right_actions = self.right_actions
        for row, column in np.ndindex(n, n):
            cell, below = row * n + column, min(row + 1, n - 1) * n
            right = right_actions[row, column]
            transitions[cell, right, below + min(column + 1, n - 1)] += self._success
            transitions[cell, right, below + column] += 1 - self._success
            transitions[cell, 1 - right, below + max(column - 1, 0)] = 1.0
            rewards[cell, right] = (column == n - 1) - cost
        reward_std = np.zeros_like(rewards)
        reward_std[[n * (n - 1), n**2 - 1]] = float(self.stochastic)
        return MDP(transitions=transitions, rewards=rewards, reward_std=reward_std, start=0, horizon=n)

    def reset(self, key: Array) -> tuple[DeepSeaState, Array]:
        """Start an episode in the top left corner."""
        del key
        return DeepSeaState(jnp.int32(0), jnp.int32(0), jnp.bool_(False), jnp.float32(0)), jnp.int32(0)

    def step(self, key: Array, state: DeepSeaState, action: Array) -> tuple[DeepSeaState, Step]:
        """Move one row down."""
        last = self.size - 1
        row, column, bad, regret = state
        goes_right = action == jnp.asarray(self.right_actions)[row, column]
        cost = MOVE_COST / self.size
        reward = jnp.where(goes_right, jnp.where(column == last, 1 - cost, -cost), 0.0)
        moves_right = goes_right
        if self.stochastic:
            wind_key, noise_key = jax.random.split(key)
            moves_right = goes_right & (jax.random.uniform(wind_key) > 1 / self.size)
            noisy = (row == last) & ((column == 0) | (column == last))
            reward = reward + jnp.where(noisy, jax.random.normal(noise_key), 0.0)
        # A right move that fails stays in its column.
        change = jnp.where(moves_right, 1, jnp.where(goes_right, 0, -1))
        on_diagonal = row == column
        value = jnp.asarray(self._diagonal_values, jnp.float32)[row]
        loss = jnp.where(on_diagonal, jnp.where(goes_right, 0.0, value), jnp.where(goes_right, cost, 0.0))
        state = DeepSeaState(
            row + 1,
            jnp.clip(column + change, 0, last),
            bad | (~goes_right & on_diagonal),
            regret + loss,
        )
        over = state.row == self.size
        obs = jnp.where(over, self.size**2, state.row * self.size + state.column)
        return state, Step(obs, reward.astype(jnp.float32), over, jnp.bool_(False))
