"""Our compiled environments behind the interface of Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np
from numpy.typing import NDArray

from bootdqn.envs.chain import Chain
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.envs.tabular_chains import RiverSwim, StochasticChain
from bootdqn.types import Env


class GymnasiumEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """A compiled environment behind the interface of Gymnasium, whose observations are its encoded features."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(self, env: Env):
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (env.encoding.size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(env.num_actions)
        self._encode = jax.jit(env.encoding)
        self._reset = jax.jit(env.reset)
        self._step = jax.jit(env.step)
        self._key = jax.random.key(0)
        self._state: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Start an episode; `seed` fixes all randomness from here on."""
        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state, obs = self._reset(self._next_key())
        return np.asarray(self._encode(obs)), {}

    def step(self, action: np.int64):
        """Take one action."""
        if not self.action_space.contains(action):
            raise ValueError(f"expected an action in {self.action_space}, got {action!r}")
        self._state, step = self._step(self._next_key(), self._state, action)
        obs = np.asarray(self._encode(step.obs))
        return obs, float(step.reward), bool(step.terminated), bool(step.truncated), {}

    def _next_key(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key


def make_chain(**options: Any) -> GymnasiumEnv:
    """Make `bootdqn/Chain-v0`, with the fields of `Chain` as options."""
    return GymnasiumEnv(Chain(**options))


def make_deep_sea(**options: Any) -> GymnasiumEnv:
    """Make `bootdqn/DeepSea-v0`, with the fields of `DeepSea` as options."""
    return GymnasiumEnv(DeepSea(**options))


def make_stochastic_chain(**options: Any) -> GymnasiumEnv:
    """Make `bootdqn/StochasticChain-v0`, with the fields of `StochasticChain` as options."""
    return GymnasiumEnv(StochasticChain(**options))


def make_river_swim(**options: Any) -> GymnasiumEnv:
    """Make `bootdqn/RiverSwim-v0`, with the fields of `RiverSwim` as options."""
    return GymnasiumEnv(RiverSwim(**options))


def register() -> None:
    """Register our environments with `gymnasium.make`."""
    gymnasium.register("bootdqn/Chain-v0", entry_point="bootdqn.envs.gym_export:make_chain", kwargs={"length": 10})
    gymnasium.register(
        "bootdqn/DeepSea-v0", entry_point="bootdqn.envs.gym_export:make_deep_sea", kwargs={"size": 10}
    )
    gymnasium.register("bootdqn/StochasticChain-v0", entry_point="bootdqn.envs.gym_export:make_stochastic_chain")
    gymnasium.register("bootdqn/RiverSwim-v0", entry_point="bootdqn.envs.gym_export:make_river_swim")
