"""Checks an environment before a long run: what would break training, what would slow it down, what is fine."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from bootdqn.core.config import GYM_AGENTS
from bootdqn.envs.spaces import Observations, action_count, space_layout
from bootdqn.envs.vector import EnvSource, make_one
from bootdqn.errors import UserError, require
from bootdqn.replay.host_memory import available_memory

FindingLevel = Literal["ok", "advice", "problem"]
"""How serious a finding is."""
_LEAST_STEPS = 100
_COMPARED = 400
"""Number of resets and steps that are compared to check that a seed is reproducible."""
_LARGE_REWARD, _LARGE_RETURN, _TINY_REWARD = 10.0, 1000.0, 1e-3
"""Sizes beyond which rewards should be rescaled."""
_SLOW = 1000
"""Below this many steps per second, a run mostly waits for its environment."""
_RARE = 0.05
"""If fewer random episodes than this share have an unusual return, random play hardly finds rewards."""


class Finding(NamedTuple):
    """The result of one check."""

    level: FindingLevel
    what: str
    """The topic in one word."""
    text: str
    """The result, and what to do about it."""


def examine(
    source: EnvSource,
    *,
    steps: int = 2000,
    seed: int = 0,
    replay_capacity: int = GYM_AGENTS["boot"].replay_capacity,
) -> list[Finding]:
    """Play an environment with random actions, and report what matters for training on it.

    Args:
        source: the environment, of which several instances are made.
        steps: number of random steps.
        seed: seed of the environment and of the actions.
        replay_capacity: number of transitions that the replay buffer of the run will hold.
    """
    require(steps >= _LEAST_STEPS, f"steps must be at least {_LEAST_STEPS}, got {steps}")
    require(0 <= seed < 2**31, f"seed must be at least 0 and below 2**31, got {seed}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium repeats them at every step; `_ask_gymnasium` keeps one of each
        return list(_examine(source, steps, seed, replay_capacity))


def _examine(source: EnvSource, steps: int, seed: int, replay_capacity: int) -> Iterator[Finding]:
    try:
        with _opened(source) as env:
            observation_space: Any = getattr(env, "observation_space", None)
            action_space: Any = getattr(env, "action_space", None)
            try:
                observations = Observations(space_layout(observation_space))
                num_actions, first_action = action_count(action_space)
            except UserError as error:
                yield Finding("problem", "spaces", str(error))
                return
            kind, size = type(observation_space).__name__, observations.encoding.size
            yield Finding("ok", "spaces", f"networks see {kind} as {size:,} numbers; {num_actions} actions")
            yield _judge_memory(observations, replay_capacity)
            yield from _ask_gymnasium(env.unwrapped, seed)
        random = np.random.default_rng(seed).integers(num_actions, size=steps)
        actions = (random + first_action).astype(action_space.dtype)
        with _opened(source) as env:
            probe = _probe(env, seed, actions)
        yield _judge_observations(probe)
        yield _judge_rewards(probe)
        yield _judge_episodes(probe)
        if probe.finite.all():
            yield _judge_exploration(probe)
        yield _judge_speed(probe)
        with _opened(source) as env:
            yield _judge_seeding(env, seed, actions, probe.fingerprints)
    except _EnvError as error:
        yield Finding(
            "problem", "failure", f"{error}; fix this and check again: the remaining checks were skipped"
        )


class _EnvError(Exception):
    """An exception that the environment raised."""


@contextmanager
def _calling(call: str) -> Iterator[None]:
    """Turn an exception into one that names the call of the environment."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise _EnvError(f"{call} failed: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    """The type and the first line of an exception."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


@contextmanager
def _opened(source: EnvSource) -> Iterator[gymnasium.Env[Any, Any]]:
    """A new environment, which is closed at the end."""
    with _calling("making the environment"):
        env = make_one(source)
    try:
        yield env
    finally:
        with _calling("close()"):
            env.close()


class _Moment(NamedTuple):
    """The result of one reset or step of the environment."""

    call: str
    """The call in words."""
    fresh: bool
    """Whether this was a reset, which has no reward."""
    obs: Any
    leaves: list[NDArray[Any]]
    """Copies of the arrays that the observation consists of."""
    reward: float
    terminated: bool
    truncated: bool
    seconds: float

    def fingerprint(self) -> tuple[bytes, bytes, bytes]:
        """The exact bytes of observation, reward and flags."""
        obs = b"".join(leaf.tobytes() for leaf in self.leaves)
        return obs, np.float64(self.reward).tobytes(), bytes([self.terminated, self.truncated])


def _play(env: gymnasium.Env[Any, Any], seed: int, actions: NDArray[Any]) -> Iterator[_Moment]:
    """Take `actions` as training does: the first reset has a seed, and the following ones have none."""
    ended = True
    for step, action in enumerate(actions, 1):
        if ended:
            call = f"reset() before step {step}"
            with _calling(call):
                begin = time.perf_counter()
                obs, _ = env.reset(seed=seed) if step == 1 else env.reset()
                seconds = time.perf_counter() - begin
                moment = _Moment(call, True, obs, _leaves(obs), 0.0, False, False, seconds)
            yield moment
        call = f"step {step}"
        with _calling(call):
            begin = time.perf_counter()
            obs, reward, terminated, truncated, _ = env.step(action)
            seconds = time.perf_counter() - begin
            ends = bool(terminated), bool(truncated)
            moment = _Moment(call, False, obs, _leaves(obs), float(reward), *ends, seconds)
        yield moment
        ended = any(ends)


def _leaves(obs: Any) -> list[NDArray[Any]]:
    if isinstance(obs, Mapping | tuple):
        parts = obs.values() if isinstance(obs, Mapping) else obs
        return [leaf for part in parts for leaf in _leaves(part)]
    return [np.array(obs)]


@dataclass(frozen=True)
class _Probe:
    """The results of random play; arrays have one entry per step [N]."""

    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    fault: str | None
    """A description of the first observation that does not fit its space."""
    seconds: float
    """Time spent in the environment, without the first reset and step, which may have to compile or load."""
    fingerprints: list[tuple[bytes, bytes, bytes]]
    """Fingerprints of the first resets and steps."""

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Whether each reward is finite in the precision of the replay buffer."""
        return np.isfinite(self.rewards.astype(np.float32))

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether an episode ended with each step."""
        return self.terminated | self.truncated

    @property
    def returns(self) -> list[float]:
        """Returns of all episodes; the last episode has not ended yet."""
        return [float(part.sum()) for part in np.split(self.rewards, np.flatnonzero(self.ended) + 1)]


def _probe(env: gymnasium.Env[Any, Any], seed: int, actions: NDArray[Any]) -> _Probe:
    fault, fingerprints, seconds, steps = None, [], [], []
    for moment in _play(env, seed, actions):
        if fault is None:
            found = _find_fault(env.observation_space, moment.obs)
            fault = found and f"the observation of {moment.call} {found}"
        if len(fingerprints) < _COMPARED:
            fingerprints.append(moment.fingerprint())
        seconds.append(moment.seconds)
        if not moment.fresh:
            steps.append((moment.reward, moment.terminated, moment.truncated))
    rewards, terminated, truncated = (np.array(column) for column in zip(*steps, strict=True))
    return _Probe(rewards, terminated, truncated, fault, sum(seconds[2:]), fingerprints)


def _find_fault(space: spaces.Space[Any], obs: Any) -> str | None:
    """How an observation does not fit its space, as the end of a sentence; None if it fits."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        wanted = dict(space.items()) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        parts: Any = dict(enumerate(obs)) if isinstance(obs, tuple) else obs if isinstance(obs, Mapping) else {}
        if parts.keys() != wanted.keys():
            return f"has the parts {list(parts)}, and its space {list(wanted)}"
        faults = ((name, _find_fault(part, parts[name])) for name, part in wanted.items())
        return next((f"in its part {name!r} {fault}" for name, fault in faults if fault), None)
    array = np.asarray(obs)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return "is not finite"
    if space.contains(obs):
        return None
    if array.shape != space.shape:
        return f"has the shape {array.shape}, and its space {space.shape}"
    if space.dtype is None or not np.can_cast(array.dtype, space.dtype):
        return f"is of {array.dtype}, and its space of {space.dtype}"
    if isinstance(space, spaces.Box):
        place = tuple(np.argwhere((array < space.low) | (array > space.high))[0])
        return f"holds {array[place]:g} where its space goes from {space.low[place]:g} to {space.high[place]:g}"
    return f"is {array.tolist()}, and its space {space}"


def _judge_observations(probe: _Probe) -> Finding:
    if probe.fault is not None:
        advice = "make observation_space and what reset() and step() return agree"
        return Finding("problem", "observations", f"{probe.fault}; {advice}")
    return Finding("ok", "observations", "finite, and inside their space")


def _judge_memory(observations: Observations, replay_capacity: int) -> Finding:
    numbers = 3 + GYM_AGENTS["boot"].num_heads  # action, reward, discount, and a mask for every head
    a_step = 2 * math.prod(observations.shape) * observations.dtype.itemsize + 4 * numbers
    needed, free = replay_capacity * a_step, available_memory()
    text = f"a replay of {replay_capacity:,} steps takes {_size(needed)}"
    if free is None:
        return Finding("ok", "memory", text)
    text = f"{text}, and {_size(free)} is free"
    if needed < free:
        return Finding("ok", "memory", text)
    fits = free // (2 * a_step)
    return Finding("problem", "memory", f"{text}: set replay_capacity to {fits:,}, or make observations smaller")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


def _judge_rewards(probe: _Probe) -> Finding:
    """Check the size of rewards, which should be of order 1, as initial value functions are."""
    if not probe.finite.all():
        step = int(np.flatnonzero(~probe.finite)[0])
        text = f"the reward of step {step + 1} is {probe.rewards[step]}; training stops where one is not finite"
        return Finding("problem", "rewards", text)
    reward, total = float(np.abs(probe.rewards).max()), max(map(abs, probe.returns))
    text = f"they reach {reward:.3g} in size, and returns {total:.3g}"
    excess = max(reward / _LARGE_REWARD, total / _LARGE_RETURN)
    if excess > 1:
        factor = 10 ** math.ceil(math.log10(excess))
        advice = f"divide them by {factor:,}, as gymnasium.wrappers.TransformReward can: values start near 1"
        return Finding("advice", "rewards", f"{text}; {advice}")
    if 0 < reward < _TINY_REWARD:
        advice = "unless larger ones wait elsewhere, multiply them, as gymnasium.wrappers.TransformReward can"
        return Finding("advice", "rewards", f"{text}; {advice}: values start near 1")
    return Finding("ok", "rewards", text if reward else "all are 0")


def _judge_episodes(probe: _Probe) -> Finding:
    ended, steps = int(probe.ended.sum()), len(probe.rewards)
    if not ended:
        text = (
            f"none ended in {steps:,} steps: wrap the environment in gymnasium.wrappers.TimeLimit; if it has a "
            "longer limit already, check with more steps"
        )
        return Finding("advice", "episodes", text)
    terminated, both = int(probe.terminated.sum()), int((probe.terminated & probe.truncated).sum())
    text = f"{ended:,} ended in {steps:,} steps: {terminated:,} terminated, {ended - terminated:,} truncated"
    if both:
        text += f"; {both:,} set both flags, which counts as terminated"
    if not terminated:
        text += (
            "; future values count beyond a truncated end, so return terminated=True if the task is over there, "
            "and not just cut short"
        )
    return Finding("ok", "episodes", text)


def _judge_exploration(probe: _Probe) -> Finding:
    """Check whether random play finds anything to learn from."""
    steps, rewarded = len(probe.rewards), float((probe.rewards != 0).mean())
    help_text = "this is where the explorers of the default agent should help; use it rather than dqn"
    if not rewarded:
        return Finding("advice", "exploration", f"no reward in {steps:,} random steps: {help_text}")
    text = f"{rewarded:.1%} of random steps have a reward"
    returns = [f"{value:.6g}" for value in probe.returns[: int(probe.ended.sum())]]
    if len(returns) < 2:
        return Finding("ok", "exploration", f"{text}; check with more steps to see whether returns differ")
    usual, count = Counter(returns).most_common(1)[0]
    differing = len(returns) - count
    text += f", and {differing:,} of {len(returns):,} random episodes return other than {usual}"
    if differing < _RARE * len(returns):
        return Finding("advice", "exploration", f"{text}: {help_text}")
    caution = "unless larger rewards wait where random play never gets"
    return Finding("ok", "exploration", f"{text}: exploration does not look like the problem, {caution}")


def _judge_speed(probe: _Probe) -> Finding:
    speed = (len(probe.rewards) - 1) / max(probe.seconds, 1e-9)
    text = f"{speed:,.0f} steps per second in one copy"
    if speed >= _SLOW:
        return Finding("ok", "speed", text)
    return Finding(
        "advice",
        "speed",
        f"{text}: run several in parallel, each in its own process: num_envs=4, vectorization='async'",
    )


def _judge_seeding(
    env: gymnasium.Env[Any, Any], seed: int, actions: NDArray[Any], expected: list[tuple[bytes, bytes, bytes]]
) -> Finding:
    """Compare a new environment with the fingerprints of another one, and after a reset with itself."""
    for who in ("two new environments", "two resets of one environment"):
        for before, moment in zip(expected, islice(_play(env, seed, actions), len(expected)), strict=True):
            pairs = zip(("observation", "reward", "end"), before, moment.fingerprint(), strict=True)
            for name, first, second in pairs:
                if first != second:
                    text = (
                        f"with the same seed and actions, {who} differ in the {name} of {moment.call}: draw all "
                        "randomness from self.np_random, which super().reset(seed=seed) seeds; to resume exactly, "
                        "a killed run repeats its actions, which depends on this"
                    )
                    return Finding("problem", "seeding", text)
    return Finding("ok", "seeding", "the same seed and actions give the same steps, so killed runs resume exactly")


def _ask_gymnasium(env: gymnasium.Env[Any, Any], seed: int) -> Iterator[Finding]:
    """Run Gymnasium's own checker on an environment without its wrappers."""
    env.action_space.seed(seed)
    failure = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except Exception as error:
            failure = _describe(error)
    if failure is not None:
        yield Finding("problem", "gymnasium", f"its checker stops at {failure}")
    said = [re.sub(r"\x1b\[[\d;]*m", "", str(warning.message)) for warning in caught]  # without terminal colours
    said = dict.fromkeys(text.removeprefix("WARN: ") for text in said if text.startswith("WARN: "))
    for text in said:
        yield Finding("advice", "gymnasium", f"its checker warns: {text}")
    if failure is None and not said:
        yield Finding("ok", "gymnasium", "its checker has no complaints")
