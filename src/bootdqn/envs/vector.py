"""Gymnasium environments side by side behind one interface, whatever their autoreset mode."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from bootdqn.envs.atari import AtariEnvs, is_atari
from bootdqn.envs.gym_export import GymnasiumEnv
from bootdqn.envs.registry import ENVS, make_env
from bootdqn.envs.spaces import Observations, action_count, space_layout
from bootdqn.errors import UserError, require, require_known
from bootdqn.types import HostStep

EnvSource = str | gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]]
"""What an environment is made from: its name, an environment, or a function that makes one."""
Vectorization = Literal["sync", "async", "own"]
"""Where environments run: in this process, in one process each, or in the environment's own vector version."""


class HostEnvs:
    """The slots of a Gymnasium vector environment, which hides the differences of autoreset modes."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]):
        self.envs = envs
        self.num_envs = envs.num_envs
        space = envs.single_observation_space
        self.observations = Observations(space_layout(space), space=space)
        self.num_actions, self.first_action = action_count(envs.single_action_space)
        mode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._mode = AutoresetMode(mode)
        self._resetting = np.zeros(self.num_envs, bool)
        self._action_dtype = envs.single_action_space.dtype
        # Sub-environments have a seed each; an environment's own vector version takes one for all.
        self._seed_each = isinstance(envs.unwrapped, SyncVectorEnv | AsyncVectorEnv)

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Start new episodes in all slots; all that follows depends on `seeds` [S] and the actions alone."""
        seed: Any = list(seeds) if self._seed_each else int(seeds[0])
        obs, _ = self.envs.reset(seed=seed)
        self._resetting[:] = False
        return self.observations.rows(obs)

    def step(self, actions: NDArray[np.integer]) -> HostStep:
        """Take an action in every slot."""
        native = (actions + self.first_action).astype(self._action_dtype)
        batch, reward, terminated, truncated, info = self.envs.step(native)
        obs = self.observations.rows(batch)
        reward = np.array(reward, np.float32)  # copies, as environments may reuse their buffers
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        done = terminated | truncated
        none, all_slots = np.zeros_like(done), np.ones_like(done)
        if self._mode == AutoresetMode.SAME_STEP:
            final = self._final_obs(obs, info, done)
            return HostStep(final, reward, terminated, truncated, all_slots, obs, done, none)
        if self._mode == AutoresetMode.DISABLED:
            following = obs
            if done.any():
                batch, _ = self.envs.reset(options={"reset_mask": done})
                following = self.observations.rows(batch)
            return HostStep(obs, reward, terminated, truncated, all_slots, following, done, none)
        was_reset, self._resetting = self._resetting, done
        ended = terminated & ~was_reset, truncated & ~was_reset
        return HostStep(obs, reward, *ended, ~was_reset, obs, was_reset, none)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _final_obs(self, obs: NDArray[Any], info: dict[str, Any], done: NDArray[np.bool_]) -> NDArray[Any]:
        """Return observations in which the last ones of episodes replace the first ones of the next episodes."""
        if not done.any():
            return obs
        final = obs.copy()
        for slot in np.flatnonzero(done):
            final[slot] = self.observations.row(info["final_obs"][slot])
        return final


Envs = HostEnvs | AtariEnvs
"""The slots of an environment on the host."""


def env_name(source: EnvSource) -> str | None:
    """Return the name by which an environment can be made again, or None if it has none."""
    if isinstance(source, str):
        return source
    spec = source.spec if isinstance(source, gymnasium.Env) else None
    # With options or wrappers of its own it is not what the name alone makes.
    return spec.id if spec is not None and spec == gymnasium.spec(spec.id) else None


def is_compiled(name: str) -> bool:
    """Return whether a name is that of an environment that runs inside a compiled program."""
    return name.partition(":")[0].partition(",")[0].replace("-", "_") in ENVS


def is_gymnasium(name: str) -> bool:
    """Return whether a name looks like that of a Gymnasium environment, or of a function as module:callable."""
    return name in gymnasium.registry or re.search(r"-v\d+$", name) is not None or _is_maker(name)


def is_on_host(name: str) -> bool:
    """Return whether a name looks like that of an environment that steps in Python."""
    return is_atari(name) or is_gymnasium(name)


def require_env(name: str) -> None:
    """Raise `UserError` with the nearest known name unless this looks like the name of an environment."""
    if not (is_on_host(name) or is_compiled(name)):
        family = name.partition(":")[0].partition(",")[0]
        known = [*ENVS, "atari:GAME, MODULE:CALLABLE or any environment of Gymnasium, such as CartPole-v1"]
        require_known("environment", family, known, more=gymnasium.registry)


def find_source(source: EnvSource) -> EnvSource:
    """Return the function that a source names as module:callable, or the source itself."""
    if not isinstance(source, str) or not _is_maker(source):
        return source
    module_name, _, attribute = source.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: people keep environments next to their scripts
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"cannot import {module_name!r} of {source!r}: {reason}") from None
    maker: Any = getattr(module, attribute, None)
    require(callable(maker), f"{module_name!r} has no callable {attribute!r}")
    return maker


def _is_maker(name: str) -> bool:
    """Return whether a name is module:callable; the names module:env of Gymnasium end in a version instead."""
    return name.partition(":")[2].isidentifier() and not (is_compiled(name) or is_atari(name))


def make_more(source: EnvSource, num_envs: int) -> Envs:
    """Make slots of new environments like `source`, even if that is itself an environment."""
    return make_envs(source if isinstance(source, str) else lambda: make_one(source), num_envs)


def make_one(source: EnvSource, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make a new environment, which is another one like `source` if that is itself an environment.

    Args:
        source: what to make.
        render_mode: how the environment should draw itself, if Gymnasium makes it by its name.
    """
    source = find_source(source)
    if isinstance(source, str):
        require(
            not is_atari(source),
            f"{source} is no single Gymnasium environment: games are played in slots, by `bootdqn train {source}`",
        )
        if is_compiled(source):
            return GymnasiumEnv(make_env(source))
        # Not every environment takes this option.
        options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        return _made_by_gymnasium(lambda: gymnasium.make(source, **options), source)
    if isinstance(source, gymnasium.Env):
        spec = source.spec
        if spec is None:
            raise UserError(
                f"{type(source).__name__} was not made by gymnasium.make, so no second one can be made for "
                "evaluation; give a function that makes one instead"
            )
        return gymnasium.make(spec)
    require(callable(source), f"expected a name, a gymnasium.Env or a function that makes one, got {source!r}")
    env = source()
    require(
        isinstance(env, gymnasium.Env),
        f"the maker should return a gymnasium.Env, got {type(env).__name__}",
    )
    return env


def make_envs(source: EnvSource, num_envs: int = 1, vectorization: Vectorization = "sync") -> Envs:
    """Make the slots of an environment.

    Args:
        source: what to make; a given environment is used itself, and so fills one slot.
        num_envs: the number of slots S.
        vectorization: where the environments run.
    """
    require(num_envs >= 1, f"num_envs must be at least 1, got {num_envs}")
    source = find_source(source)
    if isinstance(source, str) and is_atari(source):  # which has slots of its own, whatever is asked for
        return AtariEnvs(source, num_envs)
    if isinstance(source, gymnasium.Env):
        require(
            num_envs == 1 and vectorization == "sync",
            "one environment fills one slot; give its name or a function that makes it for several",
        )
        given = source
        return HostEnvs(SyncVectorEnv([lambda: given], autoreset_mode=AutoresetMode.SAME_STEP))
    if vectorization == "own":
        require(
            isinstance(source, str), "only a registered environment has a vector version of its own; give its name"
        )
        name = str(source)

        def make_vector() -> VectorEnv[Any, Any, Any]:
            return gymnasium.make_vec(name, num_envs, vectorization_mode="vector_entry_point")

        return HostEnvs(_made_by_gymnasium(make_vector, name))

    here = os.getpid()

    def make() -> gymnasium.Env[Any, Any]:
        if os.getpid() != here:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes checkpoints
        return make_one(source)

    makers = [make] * num_envs
    if vectorization == "sync":
        return HostEnvs(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
    # Never forked: JAX has threads, and a fork may hang.
    return HostEnvs(AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP, context="spawn"))


def play_randomly(envs: Envs, seed: int, num_observations: int = 512) -> NDArray[Any]:
    """Play uniformly random actions, and return the observations [N, ...] to act on.

    Args:
        envs: the slots, which are reset; what they do next should begin with a reset, too.
        seed: decides the actions, and what environments draw.
        num_observations: how many to return at least.
    """
    rng = np.random.default_rng(seed)
    rows = [envs.reset([int(word) for word in rng.integers(0, 2**31, envs.num_envs)])]
    while len(rows) * envs.num_envs < num_observations:
        rows.append(envs.step(rng.integers(0, envs.num_actions, envs.num_envs)).obs)
    return np.concatenate(rows)


def _made_by_gymnasium(make: Callable[[], Any], name: str) -> Any:
    try:
        return make()
    except gymnasium.error.Error as error:
        raise UserError(f"Gymnasium cannot make {name!r}: {error}") from None
    except ModuleNotFoundError as error:
        raise UserError(
            f"Gymnasium cannot make {name!r}: {str(error).rstrip('.')}; install what it needs"
        ) from None
