"""Environments that are given by tables: the stochastic chain and RiverSwim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.envs.chain import describe_row, draw_right_actions
from bootdqn.errors import require, require_known
from bootdqn.tabular.mdp import MDP, draw
from bootdqn.types import Encoding, Step

_LEFT, _RIGHT = 0, 1
_MAX_REWARD = 1e6
_TOLERANCE = 1e-6
"""The largest sum of losses that counts as zero; the losses of optimal actions are exactly 0."""


class TabularState(NamedTuple):
    """The position of the agent, the number of steps so far, and the regret so far."""

    position: Array
    """The index of the state, from 0."""
    time: Array
    """The number of steps in this episode."""
    regret: Array
    """The expected loss of the actions so far."""


@dataclass(frozen=True, kw_only=True)
class _Row(ABC):
    """States s_1 ... s_N in a row, two actions, and a time limit that the observation does not show."""

    length: int = 6
    """The number of states N."""
    horizon: int = 15
    """The number of steps per episode."""
    left_reward: float = 0.01
    """The mean reward of going left at s_1."""
    reward_std: float = 1.0
    """The standard deviation of the normal noise on the two rewards."""
    features: Literal["thermometer", "one_hot"] = "thermometer"
    """How a position becomes the input of the network."""
    scrambled: bool = False
    """Whether the action that means right is drawn per state, so that it is no simple function of the state."""
    scramble_seed: int = 0
    """The seed of that draw."""

    def __post_init__(self):
        require(2 <= self.length <= 2**10, f"length must be 2 to 2**10, got {self.length}")
        require(self.horizon >= self.length, f"horizon {self.horizon} is too short to be paid at s_{self.length}")
        require(self.horizon <= 2**10, f"horizon must be at most 2**10, got {self.horizon}")
        for name in ("left_reward", "reward_std"):
            value = getattr(self, name)
            require(0 <= value <= _MAX_REWARD, f"{name} must be 0 to {_MAX_REWARD:g}, got {value}")
        require(self.scramble_seed >= 0, f"scramble_seed must not be negative, got {self.scramble_seed}")
        require_known("features", self.features, ("thermometer", "one_hot"))

    @property
    def right_actions(self) -> NDArray[np.int64]:
        """The action that means right in every state [N]."""
        return (
            draw_right_actions(self.length, self.scramble_seed) if self.scrambled else np.full(self.length, _RIGHT)
        )

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
        """The states on the way of an agent that always goes right, if no move fails."""
        return np.arange(self.length)

    @property
    @abstractmethod
    def description(self) -> str:
        """The task in a few sentences for people."""

    @abstractmethod
    def _fill_right(self, transitions: np.ndarray) -> None:
        """Write the probabilities of going right into a table [S, S] of zeros."""

    @property
    def mdp(self) -> MDP:
        """The exact Markov decision process."""
        n = self.length
        transitions = np.zeros((n, 2, n))
        transitions[np.arange(n), _LEFT, np.maximum(np.arange(n) - 1, 0)] = 1.0
        self._fill_right(transitions[:, _RIGHT])
        rewards, reward_std = np.zeros((n, 2)), np.zeros((n, 2))
        rewards[0, _LEFT], rewards[-1, _RIGHT] = self.left_reward, 1.0
        reward_std[0, _LEFT] = reward_std[-1, _RIGHT] = self.reward_std
        tables = {"transitions": transitions, "rewards": rewards, "reward_std": reward_std}
        swapped = self.right_actions == _LEFT
        for table in tables.values():
            table[swapped] = table[swapped, ::-1]
        return MDP(**tables, start=0, horizon=self.horizon)

    @property
    def num_actions(self) -> int:
        """The number of actions, which is two: left and right."""
        return 2

    @property
    def encoding(self) -> Encoding:
        """The encoding of a position as the input of the network [N]."""
        return Encoding(self.features, self.length)

    @property
    def solved_return(self) -> float:
        """The mean return of an optimal episode."""
        return self.mdp.optimal_value

    def is_optimal(self, state: TabularState, episode_return: Array) -> Array:
        """Return whether every action of the episode was optimal in the state in which it was taken."""
        del episode_return
        return state.regret < _TOLERANCE

    def regret(self, state: TabularState, episode_return: Array) -> Array:
        """Return the expected loss of the actions of the episode."""
        del episode_return
        return state.regret

    def reset(self, key: Array) -> tuple[TabularState, Array]:
        """Start an episode at s_1."""
        del key
        position = jnp.int32(self.mdp.start)
        return TabularState(position, jnp.int32(0), jnp.float32(0)), position

    def step(self, key: Array, state: TabularState, action: Array) -> tuple[TabularState, Step]:
        """Draw the next state and the reward from the tables."""
        move_key, noise_key = jax.random.split(key)
        mdp = self.mdp
        at = state.position, action
        position = draw(jax.random.uniform(move_key), jnp.asarray(mdp.transitions, jnp.float32)[at])
        noise = jnp.asarray(mdp.reward_std, jnp.float32)[at] * jax.random.normal(noise_key)
        reward = jnp.asarray(mdp.rewards, jnp.float32)[at] + noise
        loss = jnp.asarray(mdp.gaps, jnp.float32)[(state.time, *at)]
        state = TabularState(position, state.time + 1, state.regret + loss)
        return state, Step(position, reward, jnp.bool_(False), state.time >= self.horizon)


@dataclass(frozen=True, kw_only=True)
class StochasticChain(_Row):
    """The paper's difficult stochastic chain (appendix C): right succeeds half of the time, else it leads left.

    Defaults are those of the authors' tabular code (TabulaRL); the paper's text has neither the left reward nor
    the noise.
    """

    @property
    def description(self) -> str:
        """The task in a few sentences for people."""
        return describe_row(self.length, self.horizon, " Right fails half of the time.", scrambled=self.scrambled)

    def _fill_right(self, transitions: np.ndarray) -> None:
        states = np.arange(self.length)
        transitions[states, np.minimum(states + 1, self.length - 1)] += 0.5
        transitions[states, np.maximum(states - 1, 0)] += 0.5


@dataclass(frozen=True, kw_only=True)
class RiverSwim(_Row):
    """Swim right against a current that mostly holds, and sometimes carries away (Strehl and Littman 2008).

    Probabilities, rewards and the horizon are those of TabulaRL.
    """

    horizon: int = 20
    """The number of steps per episode."""
    left_reward: float = 0.005
    """The mean reward of going left at s_1."""
    reward_std: float = 0.0
    """The standard deviation of the normal noise on the two rewards."""

    @property
    def description(self) -> str:
        """The task in a few sentences for people."""
        moves = " A current hinders moves to the right."
        return describe_row(self.length, self.horizon, moves, scrambled=self.scrambled)

    def _fill_right(self, transitions: np.ndarray) -> None:
        for state in range(1, self.length - 1):
            transitions[state, state - 1 : state + 2] = 0.05, 0.6, 0.35
        transitions[0, :2] = 0.4, 0.6
        transitions[-1, -2:] = 0.4, 0.6
