import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bootdqn.core.policies import (
    count_votes,
    epsilon_greedy,
    information_ratios,
    linear_schedule,
    random_argmax,
    summarise_belief,
    upper_bounds,
)

KEYS = jax.random.split(jax.random.key(0), 4000)


def test_ties_are_broken_evenly_and_losers_never_win():
    choices = np.asarray(jax.vmap(lambda key: random_argmax(key, jnp.array([1.0, 3.0, 3.0, 2.0])))(KEYS))
    counts = np.bincount(choices, minlength=4)
    assert counts[0] == counts[3] == 0
    assert abs(counts[1] - counts[2]) < 5 * np.sqrt(len(KEYS))


def test_random_argmax_of_all_negative_values():
    assert random_argmax(KEYS[0], jnp.array([-5.0, -2.0, -9.0])) == 1


def test_votes_and_belief_by_hand():
    q = jnp.array([[1.0, 2.0], [3.0, 0.0], [0.0, 5.0], [4.0, 4.0]])
    belief = summarise_belief(q)
    np.testing.assert_array_equal(belief.votes, [1.5, 2.5])  # the last head is torn
    np.testing.assert_allclose(belief.mean, [2.0, 2.75])
    np.testing.assert_allclose(belief.std, [np.sqrt(2.5), np.sqrt(3.6875)], rtol=1e-6)
    shares = np.array([0.375, 0.625])
    np.testing.assert_allclose(belief.entropy, -(shares * np.log(shares)).sum(), rtol=1e-6)


def test_only_the_last_heads_vote_where_others_explore():
    q = jnp.array([[9.0, 0.0], [0.0, 9.0], [1.0, 2.0], [4.0, 3.0]])
    belief = summarise_belief(q, 2)
    np.testing.assert_array_equal(belief.votes, [1, 1])
    np.testing.assert_allclose(belief.entropy, np.log(2), rtol=1e-6)
    np.testing.assert_array_equal(summarise_belief(q, 1).votes, [1, 0])
    np.testing.assert_allclose(belief.mean, [3.5, 3.5])  # of all heads
    assert belief.q.shape == (4, 2)


def test_bounds_and_information_ratios_by_hand():
    q = jnp.array([[1.0, 2.0, 5.0], [3.0, 2.0, -3.0]])  # means 2, 2, 1; deviations 1, 0, 4
    np.testing.assert_allclose(upper_bounds(q, 0.5), [2.5, 2.0, 3.0])
    # Lower bounds 1.5, 2 and -1, and so regrets 1.5, 1 and 4; information log(1 + 1/4), none, and log(1 + 16/4).
    expected = [1.5**2 / np.log(1.25), 1 / 1e-5, 16 / np.log(5)]
    np.testing.assert_allclose(information_ratios(q, 0.5, 2.0), expected, rtol=1e-4)


def test_an_action_that_is_known_to_be_best_is_taken_by_all():
    q = jnp.array([[9.0, 1.0], [9.0, 2.0]])
    assert np.argmax(upper_bounds(q, 1.0)) == 0
    assert np.argmin(information_ratios(q, 1.0, 1.0)) == 0  # no regret, so no information is needed


def test_agreement_has_no_entropy():
    assert summarise_belief(jnp.array([[0.0, 1.0], [2.0, 3.0]])).entropy == 0.0


def test_vote_of_one_head_is_its_greedy_action():
    np.testing.assert_array_equal(count_votes(jnp.array([[0.1, 0.7, 0.3]])), [0, 1, 0])


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float32, st.sampled_from([(1, 2), (3, 5), (8, 4)]), elements=st.integers(-3, 3)))
def test_votes_are_a_sum_over_heads(q):
    votes = np.asarray(count_votes(jnp.asarray(q)))
    np.testing.assert_allclose(votes.sum(), q.shape[0], rtol=1e-5)
    np.testing.assert_allclose(votes, sum(np.asarray(count_votes(jnp.asarray(row[None]))) for row in q), rtol=1e-5)
    order = np.random.default_rng(0).permutation(q.shape[0])
    np.testing.assert_allclose(votes, count_votes(jnp.asarray(q[order])), rtol=1e-5)
    belief = summarise_belief(jnp.asarray(q))
    assert -1e-6 <= belief.entropy <= np.log(q.shape[1]) + 1e-5


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 0.0), (0.5, 0.375), (1.0, 0.75)])
def test_epsilon_is_the_share_of_uniform_actions(epsilon, share):
    act = jax.vmap(lambda key: epsilon_greedy(key, jnp.int32(2), jnp.float32(epsilon), 4))
    other = np.mean(np.asarray(act(KEYS)) != 2)
    assert abs(other - share) <= 5 * np.sqrt(share * (1 - share) / len(KEYS))


def test_linear_schedule():
    values = [float(linear_schedule(jnp.int32(step), 1.0, 0.1, 100)) for step in (0, 50, 100, 10_000)]
    np.testing.assert_allclose(values, [1.0, 0.55, 0.1, 0.1], rtol=1e-6)
    # With nothing to anneal over, the end value holds from the first step.
    assert float(linear_schedule(jnp.int32(0), 1.0, 0.1, 0)) == pytest.approx(0.1)
