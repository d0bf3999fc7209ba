import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.losses import error_loss, pick, shortfall, td_target

# Two heads, three actions. The online network prefers actions 2 and 0, the target network 0 and 1.
NEXT_Q = jnp.array([[1.0, 2.0, 5.0], [4.0, 3.0, 0.0]])
NEXT_TARGET_Q = jnp.array([[10.0, 7.0, 8.0], [20.0, 30.0, 25.0]])


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("double_q", "expected"),
    # Double-Q values the online choice: 1 + .5 * 8 and 1 + .5 * 20. Else the target's own best: 10 and 30.
    [(True, [5.0, 11.0]), (False, [6.0, 16.0])],
)
def test_td_target_by_hand(wrap, double_q, expected):
    target = wrap(lambda r, d: td_target(r, d, NEXT_Q, NEXT_TARGET_Q, double_q=double_q))
    np.testing.assert_allclose(target(jnp.float32(1.0), jnp.float32(0.5)), expected)


def test_a_next_value_is_bounded_before_it_is_discounted():
    bounds = jnp.array([6.0, 25.0])  # of the values 8 and 20 that double-Q picks
    target = td_target(jnp.float32(1.0), jnp.float32(0.5), NEXT_Q, NEXT_TARGET_Q, double_q=True, ceiling=bounds)
    np.testing.assert_allclose(target, [4.0, 11.0])


def test_termination_leaves_only_the_reward():
    target = td_target(jnp.float32(-2.0), jnp.float32(0.0), NEXT_Q, NEXT_TARGET_Q, double_q=True)
    np.testing.assert_array_equal(target, [-2.0, -2.0])


def test_how_far_an_action_falls_behind_the_best_by_hand():
    np.testing.assert_array_equal(shortfall(NEXT_TARGET_Q, jnp.int32(2)), [2.0, 5.0])
    np.testing.assert_array_equal(shortfall(NEXT_TARGET_Q, jnp.int32(1)), [3.0, 0.0])
    gradient = jax.grad(lambda q: shortfall(q, jnp.int32(2)).sum())(NEXT_TARGET_Q)
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


def test_no_gradient_flows_through_the_target():
    def total(next_q, next_target_q):
        return td_target(jnp.float32(1.0), jnp.float32(0.9), next_q, next_target_q, double_q=True).sum()

    for gradient in jax.grad(total, argnums=(0, 1))(NEXT_Q, NEXT_TARGET_Q):
        np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_error_losses_by_hand(wrap):
    error = jnp.array([0.0, 0.5, -1.0, 3.0])
    np.testing.assert_allclose(wrap(lambda e: error_loss(e, "squared"))(error), [0, 0.125, 0.5, 4.5])
    np.testing.assert_allclose(wrap(lambda e: error_loss(e, "huber"))(error), [0, 0.125, 0.5, 2.5])
    slope = jax.grad(lambda e: wrap(lambda x: error_loss(x, "huber"))(e).sum())(error)
    np.testing.assert_allclose(slope, [0, 0.5, -1, 1])


def test_pick_takes_one_action_for_all_heads_or_one_each():
    np.testing.assert_array_equal(pick(NEXT_Q, jnp.int32(1)), [2.0, 3.0])
    np.testing.assert_array_equal(pick(NEXT_Q, jnp.array([2, 0])), [5.0, 4.0])
