"""The host loop: who acts, what is stored, how often it learns, and that it learns what the compiled loop does."""

import dataclasses

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.core.config import AGENTS, GYM_AGENTS
from bootdqn.envs.registry import make_env
from bootdqn.envs.vector import make_envs
from bootdqn.loops.compiled import _best_rest, make_compiled_loop
from bootdqn.loops.learner import best_rest
from small_runs import TINY, host_loop, ring

_BEST_REST = jax.jit(_best_rest)


@pytest.mark.optimized
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"redraw_probability": 0.3},
        {"n_steps": 3},
        {"reward_noise": 0.5, "priority_exponent": 0.6, "dueling": True},
        {"reward_noise": 0.5, "priority_exponent": 0.6, "n_steps": 2, "head_candidates": 2},
        {
            "explorer_share": 0.5,
            "bound_values": True,
            "epsilon_start": 0.3,
            "epsilon_end": 0.3,
        },
    ],
    ids=str,
)
def test_a_chain_through_both_loops_learns_the_same(options):
    small = {"num_heads": 4, "hidden": (16,), "learning_start_steps": 30}
    config = dataclasses.replace(AGENTS["boot"], **small, **options)
    env, episodes = make_env("chain:5"), 12
    compiled = make_compiled_loop(env, config, seeds=(7,), episodes=episodes)
    returns = np.concatenate([chunk.metrics.episode_return[0] for chunk in compiled.chunks()])
    steps = episodes * env.horizon
    host = host_loop(make_envs("chain:5"), config, seed=7, steps=steps)
    host.begin()
    found = []
    while host.position < steps:
        host.learner.flush()  # before acting, as the compiled loop learns
        found += host.tick()
    host.learner.flush()
    heads = [episode.head for episode in found]
    assert [episode.episode_return for episode in found] == pytest.approx(returns.tolist(), abs=1e-5)
    assert len(set(heads)) > 1
    assert host.learner.counters.updates == steps - 29
    state = compiled._states[0]
    assert state is not None
    np.testing.assert_allclose(ring(host).data.reward, state.replay.data.reward[0], atol=1e-7)
    np.testing.assert_array_equal(ring(host).data.action, state.replay.data.action[0])
    np.testing.assert_array_equal(ring(host).data.mask, state.replay.data.mask[0])
    np.testing.assert_array_equal(ring(host).data.discount, state.replay.data.discount[0])
    for ours, theirs in zip(
        jax.tree.leaves(host.learner.learned.learner.params), jax.tree.leaves(state.learner.params), strict=True
    ):
        np.testing.assert_allclose(ours, theirs[0], atol=2e-3)


@pytest.mark.parametrize(
    ("num_envs", "period"),
    [(3, 4), *(pytest.param(*case, marks=pytest.mark.integration) for case in ((1, 1), (1, 4), (3, 1)))],
)
def test_updates_are_made_as_often_as_asked_for(num_envs, period):
    config = dataclasses.replace(GYM_AGENTS["boot"], **TINY, learning_period_steps=period)
    run = host_loop(make_envs("CartPole-v1", num_envs), config, seed=0, steps=200)
    run.begin()
    while run.learner.counters.step < 100:
        run.tick()
    run.learner.flush()
    step = run.learner.counters.step
    # One for every multiple of the period from the start of learning on.
    assert (
        int(run.learner.learned.learner.updates) == step // period - 19 // period == run.learner.counters.updates
    )
    assert int(ring(run).added) == step


@pytest.mark.integration
def test_every_slot_follows_its_own_head_for_an_episode():
    config = dataclasses.replace(GYM_AGENTS["boot"], **{**TINY, "num_heads": 50})
    run = host_loop(make_envs("CartPole-v1", 4), config, seed=1, steps=400)
    run.begin()
    heads = []
    ended = np.ones(4, bool)
    for _ in range(80):
        before = run._heads.copy()
        episodes = run.tick()
        heads.append(run._heads.copy())
        assert (run._heads == before)[~ended].all()
        ended = np.zeros(4, bool)
        for episode in episodes:
            assert episode.head == heads[-1][episode.slot]
            ended[episode.slot] = True
    assert len(np.unique(heads)) > 8
    assert all(len(set(row)) > 1 for row in heads)
    # The masks that are stored differ between slots when they are drawn.
    half = dataclasses.replace(config, mask_probability=0.5)
    run = host_loop(make_envs("CartPole-v1", 2), half, seed=1, steps=400)
    run.begin()
    run.tick()
    run.learner.flush()
    masks = np.asarray(ring(run).data.mask[:2])
    assert 0.3 < masks.mean() < 0.7
    assert (masks[0] != masks[1]).any()


@pytest.mark.integration
def test_heads_are_redrawn_as_often_as_asked_for():
    config = dataclasses.replace(GYM_AGENTS["boot"], **{**TINY, "num_heads": 50}, redraw_probability=0.25)
    run = host_loop(make_envs("CartPole-v1", 4), config, seed=1, steps=2000)
    run.begin()
    changed = total = 0
    while total < 800:
        before, fresh = run._heads.copy(), run._fresh.copy()
        run.tick()
        assert (run._heads == np.asarray(run._slots.head)).all()
        changed += int((run._heads != before)[~fresh].sum())
        total += int((~fresh).sum())
    # A new head is the same as the old one in one case of 50; four standard deviations of 800 draws are 0.06.
    assert changed / total == pytest.approx(0.25 * 49 / 50, abs=0.06)


def test_time_limits_keep_their_discount():
    class Short(gymnasium.Env):
        observation_space, action_space = spaces.Box(-9, 9, (1,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps, self.count = 0, getattr(self, "count", 0) + 1
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.steps += 1
            last, even = self.steps == 3, self.count % 2 == 0
            return np.full(1, self.steps, np.float32), 1.0, last and even, last and not even, {}

    config = dataclasses.replace(GYM_AGENTS["boot"], **TINY)
    run = host_loop(make_envs(Short), config, seed=0, steps=100)
    run.begin()
    for _ in range(12):
        run.tick()
    run.learner.flush()
    data = ring(run).data
    np.testing.assert_allclose(data.discount[:12], [0.99] * 5 + [0.0] + [0.99] * 5 + [0.0])
    np.testing.assert_array_equal(data.next_obs[:12, 0], [1, 2, 3] * 4)
    np.testing.assert_array_equal(data.obs[:12, 0], [0, 1, 2] * 4)


def test_the_best_rest_of_an_episode_by_hand():
    assert best_rest([0.0, 1.0, -3.0, 2.0], 0.5) == 2
    assert best_rest([1.0, 1.0, -3.0], 0.5) == 1 + 0.5 * (1 - 1.5)
    assert best_rest([-1.0, -1.0], 0.9) == best_rest([], 0.9) == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-3, 3, width=32), min_size=5, max_size=5), st.sampled_from([0.0, 0.5, 0.99]))
def test_the_best_rest_is_that_of_the_best_step_in_both_loops(rewards, discount):
    rests = [sum(r * discount**i for i, r in enumerate(rewards[start:])) for start in range(len(rewards))]
    expected = max(0, *rests)
    assert best_rest(rewards, discount) == pytest.approx(expected, abs=1e-5)
    assert max(0.0, float(_BEST_REST(np.float32(rewards), discount))) == pytest.approx(expected, abs=1e-5)
