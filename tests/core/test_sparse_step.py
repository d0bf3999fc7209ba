"""Adam that touches only the rows of a table that a batch read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AGENTS, AgentConfig
from bootdqn.core.update import SparseState
from bootdqn.errors import UserError
from bootdqn.types import Encoding, Transition
from helpers import trees_equal

KEY = jax.random.key(0)
NUM_STATES = 6
OPTIONS = {"num_heads": 3, "hidden": (4,), "target_period_updates": 3, "learning_rate": 0.01}


def transitions(states, seed=0):
    rng = np.random.default_rng(seed)
    size = len(states)
    return Transition(
        jnp.asarray(states, jnp.int32),
        jnp.asarray(rng.integers(0, 2, size)),
        jnp.asarray(rng.normal(size=size), jnp.float32),
        jnp.full(size, 0.9),
        jnp.asarray(rng.integers(0, NUM_STATES, size), jnp.int32),
        jnp.asarray(rng.integers(0, 2, (size, 3)), jnp.float32),
    )


def agents(batch_size, **options):
    """The agent with a sparse step, and with a dense one."""
    options = {**OPTIONS, "batch_size": batch_size, **options}
    configs = (AgentConfig(**options, sparse_step=sparse) for sparse in (True, False))
    made = [make_agent(config, Encoding("one_hot", NUM_STATES), 2) for config in configs]
    return [agent._replace(init=jax.jit(agent.init), update=jax.jit(agent.update)) for agent in made]


@pytest.mark.parametrize("action_gap", [0.0, 0.8])
def test_where_every_row_is_touched_the_gradient_is_the_dense_one(action_gap):
    """The first step of Adam is the same with momentum and without; repeated states add up."""
    states = [*range(NUM_STATES), 0, 3, 3]
    sparse, dense = agents(len(states), action_gap=action_gap)
    before = sparse.init(KEY)
    assert isinstance(before.opt_state, SparseState)
    ours, _, _ = sparse.update(before, transitions(states))
    theirs, metrics, _ = dense.update(dense.init(KEY), transitions(states))
    assert float(metrics.loss) > 0
    for a, b in zip(jax.tree.leaves(ours.params), jax.tree.leaves(theirs.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.opt_state.nu, theirs.opt_state[0].nu.layers[0].weight, rtol=1e-4, atol=1e-9)


def test_rows_follow_adam_without_momentum_by_hand():
    sparse, dense = agents(4)
    learner = sparse.init(KEY)
    table, nu = (np.asarray(x, np.float64) for x in (learner.params.layers[0].weight, learner.opt_state.nu))
    for count in range(1, 6):
        batch = transitions([2, 2, 5, count % 2], seed=count)
        # The dense agent with the same parameters and fresh moments: a tenth of the gradient is its first moment.
        like_dense = dense.init(KEY)._replace(params=learner.params, target_params=learner.target_params)
        gradient = 10 * np.asarray(dense.update(like_dense, batch)[0].opt_state[0].mu.layers[0].weight)
        learner, _, _ = sparse.update(learner, batch)
        rows = sorted({2, 5, count % 2})
        nu[rows] = 0.999 * nu[rows] + 0.001 * gradient[rows] ** 2
        table[rows] -= 0.01 * gradient[rows] / (np.sqrt(nu[rows] / (1 - 0.999**count)) + 1e-8)
        np.testing.assert_allclose(learner.params.layers[0].weight, table, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(learner.opt_state.nu, nu, rtol=1e-3, atol=1e-9)


def test_untouched_rows_keep_their_bits_and_the_target_network_is_copied_whole():
    sparse, _ = agents(2)
    learner = first = sparse.init(KEY)
    touched: set[int] = set()
    for count in range(1, 10):
        states = [count % 3, 4]
        touched |= set(states)
        learner, _, _ = sparse.update(learner, transitions(states, seed=count))
        untouched = sorted(set(range(NUM_STATES)) - touched)
        assert trees_equal(
            learner.params.layers[0].weight[jnp.array(untouched)],
            first.params.layers[0].weight[jnp.array(untouched)],
        )
        same = trees_equal(learner.target_params.layers, learner.params.layers)
        assert same == (count % 3 == 0)  # the period of the target network


def test_only_networks_that_look_up_have_it():
    for encoding in (Encoding("thermometer", 4), Encoding("vector", 4)):
        config = AgentConfig(**OPTIONS, sparse_step=True)
        assert not isinstance(make_agent(config, encoding, 2).init(KEY).opt_state, SparseState)
    assert AGENTS["boot-prior"].sparse_step
    with pytest.raises(UserError, match="sparse_step is for the adam optimizer"):
        AgentConfig(optimizer="rmsprop", sparse_step=True)
