from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from bootdqn.envs.spaces import Observations, space_layout
from bootdqn.envs.vector import Envs, HostEnvs, make_envs
from scripted import FIRST_ACTION, FORMS, MODES, Scripted


def step_of(row: Any) -> int:
    """How far into its episode an observation is."""
    return int(row[2]) if np.ndim(row) else int(row) % 10


def policy(row: Any) -> int:
    return int(7 * np.sum(row)) % 3


def naive_transitions(form: str, seed: int, count: int) -> list[tuple[Any, ...]]:
    """The first transitions of one environment, the plain way."""
    env, found = Scripted(form), []
    row = Observations(space_layout(env.observation_space)).row
    obs = row(env.reset(seed=seed)[0])
    for _ in range(count):
        action = policy(obs)
        after, reward, terminated, truncated, _ = env.step(action + FIRST_ACTION)
        next_obs = row(after)
        found.append((obs.tolist(), action, reward, terminated, truncated, next_obs.tolist()))
        obs = row(env.reset()[0]) if terminated or truncated else next_obs
    return found


def assert_plays_like_one(envs: Envs, form: str, seeds: list[int], ticks: int, *, skips: bool) -> None:
    """From a reset, every slot has the transitions of an environment alone; `skips`: resets take a tick."""
    obs = envs.reset(seeds)
    assert [step_of(row) for row in obs] == [0] * len(seeds)
    found: list[list[tuple[Any, ...]]] = [[] for _ in seeds]
    num_fresh = np.zeros(len(seeds), int)
    ended_before = np.zeros(len(seeds), bool)
    for _ in range(ticks):
        actions = np.array([policy(row) for row in obs], np.int32)
        step = envs.step(actions)
        ended = step.terminated | step.truncated
        assert step.reward.dtype == np.float32
        assert step.obs.dtype == step.next_obs.dtype == obs.dtype
        np.testing.assert_array_equal(step.fresh, [step_of(row) == 0 for row in step.obs])
        np.testing.assert_array_equal(step.fresh, ended_before if skips else ended)
        np.testing.assert_array_equal(step.valid, ~ended_before if skips else np.ones(len(seeds), bool))
        assert not (ended & ~step.valid).any()
        for slot in np.flatnonzero(step.valid):
            flags = bool(step.terminated[slot]), bool(step.truncated[slot])
            found[slot].append(
                (obs[slot].tolist(), actions[slot], step.reward[slot], *flags, step.next_obs[slot].tolist())
            )
        num_fresh += step.fresh
        obs, ended_before = step.obs, ended
    for slot, seed in enumerate(seeds):
        assert len(found[slot]) == ticks - (num_fresh[slot] if skips else 0)
        assert found[slot] == naive_transitions(form, seed, len(found[slot]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_envs", [1, 2, 5])
@pytest.mark.parametrize("mode", MODES)
def test_slots_play_like_one_environment(mode, num_envs, form):
    envs = HostEnvs(SyncVectorEnv([lambda: Scripted(form)] * num_envs, autoreset_mode=mode))
    assert (envs.num_envs, envs.num_actions, envs.first_action) == (num_envs, 3, FIRST_ACTION)
    skips = mode == AutoresetMode.NEXT_STEP
    assert_plays_like_one(envs, form, list(range(num_envs)), 40, skips=skips)
    # A reset at any moment begins cleanly: in the middle of an episode, at its end, and just after.
    for ticks in range(13):
        assert_plays_like_one(envs, form, [ticks + 3 * slot for slot in range(num_envs)], ticks, skips=skips)
    envs.close()


def test_a_reset_just_after_an_episode_has_ended():
    for mode in MODES:
        envs = HostEnvs(SyncVectorEnv([Scripted] * 2, autoreset_mode=mode))
        envs.reset([0, 1])  # of 3 steps and of 1
        assert envs.step(np.zeros(2, np.int32)).terminated.tolist() == [False, True]
        np.testing.assert_array_equal(envs.reset([4, 5]), [[4, 0, 0], [5, 0, 0]])
        step = envs.step(np.zeros(2, np.int32))
        assert step.valid.tolist() == [True, True]
        np.testing.assert_array_equal(step.next_obs, [[4, 0, 1], [5, 0, 1]])
        envs.close()


def test_slots_in_processes_play_like_one_environment():
    envs = HostEnvs(
        AsyncVectorEnv([Scripted] * 2, autoreset_mode=AutoresetMode.SAME_STEP, context="forkserver", daemon=True)
    )
    try:
        for ticks in (25, 3, 8):
            assert_plays_like_one(envs, "array", [ticks, ticks + 2], ticks, skips=False)
    finally:
        envs.close()


@pytest.mark.integration
def test_slots_in_processes_are_not_forked():
    """A fork of a process in which JAX has started its threads may hang; JAX warns, and a warning is an error."""
    jax.block_until_ready(jnp.zeros(3) + 1)
    envs = make_envs(Scripted, 2, "async")
    try:
        assert_plays_like_one(envs, "array", [1, 5], 9, skips=False)
    finally:
        envs.close()


def test_a_given_environment_is_used_itself():
    env = Scripted()
    envs = make_envs(env)
    assert_plays_like_one(envs, "array", [2], 9, skips=False)
    assert env.script == 2


def play_at_random(envs: Envs, seed: int, ticks: int) -> list[Any]:
    """All there is to see of random actions; the actions depend on `ticks` alone."""
    rng = np.random.default_rng(ticks)
    seen: list[Any] = [envs.reset([seed + slot for slot in range(envs.num_envs)])]
    actions = rng.integers(0, envs.num_actions, (ticks, envs.num_envs)).astype(np.int32)
    return seen + [envs.step(row) for row in actions]


def test_the_own_vector_version_of_an_environment():
    envs = make_envs("CartPole-v1", 3, "own")
    assert not isinstance(envs.envs.unwrapped, SyncVectorEnv)
    first, *steps = play_at_random(envs, 11, 200)
    assert first.shape == (3, 4)
    assert (np.abs(first) <= 0.05).all()
    obs, may_end = first, np.zeros(3, bool)
    ends = 0
    for step in steps:
        ended = step.terminated | step.truncated
        np.testing.assert_array_equal(step.valid, ~may_end)
        np.testing.assert_array_equal(step.fresh, may_end)
        np.testing.assert_array_equal(step.next_obs[~ended & step.valid], step.obs[~ended & step.valid])
        assert (np.abs(step.obs[step.fresh]) <= 0.05).all()
        # The dynamics: the position moves by what the velocity was.
        moved = step.next_obs[:, 0] - obs[:, 0] - 0.02 * obs[:, 1]
        np.testing.assert_allclose(moved[step.valid], 0, atol=1e-5)
        assert (step.reward[step.valid] == 1).all()
        # Out of bounds exactly where it ended.
        outside = (np.abs(step.next_obs[:, 2]) > 0.2095) | (np.abs(step.next_obs[:, 0]) > 2.4)
        np.testing.assert_array_equal(step.terminated, outside & step.valid)
        obs, may_end = step.obs, ended
        ends += ended.sum()
    assert ends > 10
    again, other = play_at_random(envs, 11, 200), play_at_random(envs, 12, 200)
    for a, b in zip(jax.tree.leaves([first, *steps]), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first, other[0])
    envs.close()


class Reusing(VectorEnv[Any, Any, Any]):
    """Counts, and returns the same arrays every time."""

    def __init__(self, space: spaces.Space[Any], mode: AutoresetMode):
        self.num_envs = 2
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = space, spaces.Discrete(2)
        self.observation_space, self.action_space = batch_space(space, 2), batch_space(spaces.Discrete(2), 2)
        assert space.shape is not None
        self.obs, self.reward = np.zeros((2, *space.shape), space.dtype), np.zeros(2, np.float32)
        self.terminated, self.truncated = np.zeros(2, bool), np.zeros(2, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None):
        self.obs[...] = 0
        return self.obs, {}

    def step(self, actions: Any):
        self.obs += 1
        self.reward += 1
        self.terminated ^= True
        final = self.obs.copy()
        return self.obs, self.reward, self.terminated, self.truncated, {"final_obs": final}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "space", [spaces.Box(0, 99, (3,)), spaces.Box(0, 255, (3,), np.uint8), spaces.Discrete(99, dtype=np.int32)]
)
def test_what_was_returned_stays_though_environments_reuse_their_arrays(space, mode):
    """Learning from a tick goes on while environments carry out the next."""
    envs = HostEnvs(Reusing(space, mode))
    first = envs.reset([0, 1])
    before = first.copy()
    step = envs.step(np.zeros(2, np.int32))
    copies = [field.copy() for field in step]
    envs.step(np.zeros(2, np.int32))
    np.testing.assert_array_equal(first, before)
    for name, field, copy in zip(step._fields, step, copies, strict=True):
        np.testing.assert_array_equal(field, copy, name)
