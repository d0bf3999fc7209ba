"""Gymnasium environments whose rewards are rare, as functions that make them; some need `minigrid`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from bootdqn.errors import UserError

STANDING_STEPS = 100
"""Steps that a pole must stand in `sparse_cart_pole`; at random it falls after about 20."""


class Task(NamedTuple):
    """An environment, and what it means to be rewarded in an episode."""

    env: str
    """The name of the environment, or of the function that makes it."""
    goal_ends: bool = False
    """Whether reaching the goal is what ends an episode; else an episode is rewarded if its return is positive."""


def frozen_lake() -> gymnasium.Env[Any, Any]:
    """FrozenLake of 8x8 cells, where moves succeed."""
    return gymnasium.make("FrozenLake8x8-v1", is_slippery=False)


class _SparseCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose only reward, 1, ends the episode after the pole has stood for `STANDING_STEPS` steps."""

    _steps = 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, _, fallen, truncated, info = self.env.step(action)
        self._steps += 1
        stands = self._steps >= STANDING_STEPS and not fallen
        return obs, float(stands), fallen or stands, truncated, info


def sparse_cart_pole() -> gymnasium.Env[Any, Any]:
    """CartPole with one reward, at the end of an episode in which the pole stood for 100 steps."""
    return _SparseCartPole(gymnasium.make("CartPole-v1"))


def empty_room_5x5() -> gymnasium.Env[Any, Any]:
    """MiniGrid's empty room of 5x5 cells, as a picture of small codes."""
    return _minigrid("MiniGrid-Empty-5x5-v0")


def empty_room_8x8() -> gymnasium.Env[Any, Any]:
    """MiniGrid's empty room of 8x8 cells, as a picture of small codes."""
    return _minigrid("MiniGrid-Empty-8x8-v0")


def door_and_key() -> gymnasium.Env[Any, Any]:
    """MiniGrid's rooms of 5x5 cells with a key and a locked door, as a picture of small codes."""
    return _minigrid("MiniGrid-DoorKey-5x5-v0")


def _minigrid(name: str) -> gymnasium.Env[Any, Any]:
    try:
        wrappers = importlib.import_module("minigrid.wrappers")
    except ImportError:
        raise UserError(f"{name} needs minigrid: pip install 'bootdqn[minigrid]'") from None
    return wrappers.ImgObsWrapper(gymnasium.make(name))


def _maker(function: Callable[[], gymnasium.Env[Any, Any]]) -> str:
    return f"{function.__module__}:{function.__name__}"


_TAXI = next(name for name in sorted(gymnasium.registry, reverse=True) if name.startswith("Taxi-v"))
TASKS: dict[str, Task] = {
    "MountainCar": Task("MountainCar-v0", goal_ends=True),
    "Acrobot": Task("Acrobot-v1", goal_ends=True),
    "CartPole, sparse": Task(_maker(sparse_cart_pole)),
    "FrozenLake 8x8": Task(_maker(frozen_lake)),
    "FrozenLake 8x8, slippery": Task("FrozenLake8x8-v1"),
    "Taxi": Task(_TAXI, goal_ends=True),
    "MiniGrid Empty 5x5": Task(_maker(empty_room_5x5)),
    "MiniGrid Empty 8x8": Task(_maker(empty_room_8x8)),
    "MiniGrid DoorKey 5x5": Task(_maker(door_and_key)),
}
"""The environments by the names that tables give them."""
