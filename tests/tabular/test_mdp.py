"""Problems given by tables: plans, policies and episodes by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.envs.tabular_chains import RiverSwim
from bootdqn.errors import UserError
from bootdqn.loops.tabular import play
from bootdqn.tabular.mdp import MDP, draw, greedy_policy, plan


def test_plan_by_hand():
    # Action 1 of state 0 pays nothing and leads to state 1, where action 0 pays 2 and stays.
    transitions = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], float)
    rewards = np.array([[0.5, 0], [2, 0]])
    mdp = MDP(transitions=transitions, rewards=rewards, reward_std=np.zeros((2, 2)), start=0, horizon=3)
    # From the end: 0.5 or 0, and 2 or 0; then 0.5 + 0.5 or 2, and 2 + 2 or 0.5; then 0.5 + 2 or 4, 2 + 4 or 2.
    expected = [[[2.5, 4.0], [6.0, 2.0]], [[1.0, 2.0], [4.0, 0.5]], [[0.5, 0.0], [2.0, 0.0]]]
    np.testing.assert_array_equal(mdp.optimal_q, expected)
    np.testing.assert_array_equal(plan(jnp.asarray(transitions), jnp.asarray(rewards), mdp.shape), expected)
    assert mdp.optimal_value == 4
    # Always 0.5, in expectation 1.5: 2.5 less than the best; half of the time the first step loses 1.5.
    stays = jnp.zeros((3, 2, 2)).at[:, :, 0].set(1.0)
    assert float(mdp.regret(stays)) == 2.5
    half = greedy_policy(jnp.asarray(mdp.optimal_q)).at[0, 0].set(0.5)
    assert float(mdp.regret(half)) == 0.75


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transitions": np.ones((2, 2, 2))}, "must sum to 1"),
        ({"transitions": np.tile([1.5, -0.5], (2, 2, 1))}, "must not be negative"),
        ({"rewards": np.zeros((3, 2))}, r"expected tables \[S, A, S\]"),
        ({"reward_std": -np.ones((2, 2))}, "reward_std must not be negative"),
        ({"start": 2}, "start must be a state from 0 to 1, got 2"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
    ],
)
def test_tables_that_are_no_problem(change, message):
    tables = {"transitions": np.full((2, 2, 2), 0.5), "rewards": np.zeros((2, 2)), "reward_std": np.zeros((2, 2))}
    with pytest.raises(UserError, match=message):
        MDP(**{**tables, "start": 0, "horizon": 2, **change})


def test_greedy_policy_shares_ties_and_dithers():
    q = jnp.array([[1.0, 2.0, 2.0], [3.0, 0.0, 0.0]])
    np.testing.assert_allclose(greedy_policy(q), [[0, 0.5, 0.5], [1, 0, 0]])
    np.testing.assert_allclose(greedy_policy(q, 0.3), [[0.1, 0.45, 0.45], [0.8, 0.1, 0.1]], rtol=1e-6)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(any), st.floats(0, 1, exclude_max=True, width=32)
)
def test_draws_are_where_the_probability_is(weights, uniform):
    probabilities = np.array(weights, np.float32) / np.float32(sum(weights))
    index = int(draw(jnp.float32(uniform), jnp.asarray(probabilities)))
    assert probabilities[index] > 0
    below, above = probabilities[:index].sum(), probabilities[: index + 1].sum()
    assert below - 1e-6 <= uniform <= above + 1e-6


def test_episodes_follow_the_policy_and_the_tables():
    mdp = RiverSwim().mdp
    policy = jnp.broadcast_to(jnp.array([0.3, 0.7]), (20, 6, 2))
    keys = jax.random.split(jax.random.key(0), 5000)
    trajectory = jax.jit(jax.vmap(lambda key: play(key, mdp, policy)))(keys)
    states, actions, moved = map(np.asarray, (trajectory.states, trajectory.actions, trajectory.next_states))
    assert not states[:, 0].any()
    np.testing.assert_array_equal(moved[:, :-1], states[:, 1:])
    assert actions.mean() == pytest.approx(0.7, abs=4 * 0.46 / math.sqrt(actions.size))
    at = (states == 2) & (actions == 1)
    shares = np.bincount(moved[at], minlength=6) / at.sum()
    np.testing.assert_allclose(shares, [0, 0.05, 0.6, 0.35, 0, 0], atol=2 / math.sqrt(at.sum()))
    np.testing.assert_array_equal(trajectory.rewards, mdp.rewards.astype(np.float32)[states, actions])
