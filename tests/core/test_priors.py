"""Random functions that are added to what heads learn: their numbers, their scale, and that they stay the same."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.config import ATARI_AGENTS, AgentConfig
from bootdqn.core.networks import PriorNetwork, PriorTable
from bootdqn.types import Encoding, Transition
from helpers import VECTOR, batch, compiled_agent, linear_learner, small_agent, trees_equal

KEY = jax.random.key(0)
STATES = {"one_hot": 30, "thermometer": 12}


def values_of(agent, params, observations):
    """Values [N, K, A] of a batch of observations."""
    return np.asarray(jax.jit(jax.vmap(lambda obs: agent.belief(params, obs).q))(observations))


def no_bounds(size):
    """Bounds of inputs that have none."""
    return jnp.full(size, -jnp.inf), jnp.full(size, jnp.inf)


def without_learned(params):
    """The same parameters, but for heads that have learned to say 0."""
    return eqx.tree_at(lambda p: p.layers, params, jax.tree.map(jnp.zeros_like, params.layers))


def test_values_and_gradient_with_a_prior_by_hand():
    # Two linear heads on states 0 and 1 as vectors; the prior is a table, which any observation can index.
    agent = compiled_agent(
        AgentConfig(num_heads=2, hidden=(), prior_scale=1.0, batch_size=1), Encoding("one_hot", 2), 2
    )
    learner = agent.init(KEY)
    prior = PriorTable(jnp.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 7.0], [8.0, 6.0]]]))  # [state, head, action]
    weight = jnp.array([[[0.5, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 1.0]]])

    def set_to(params, weight, prior):
        params = eqx.tree_at(lambda p: (p.layers[0].weight, p.layers[0].bias), params, (weight, jnp.zeros((2, 2))))
        return params if prior is None else eqx.tree_at(lambda p: p.prior, params, prior)

    learner = learner._replace(
        params=set_to(learner.params, weight, prior),
        target_params=set_to(learner.target_params, 2 * weight, None),
    )
    np.testing.assert_allclose(agent.belief(learner.params, jnp.int32(0)).q, [[1.5, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(agent.belief(learner.params, jnp.int32(1)).q, [[8.0, 7.0], [8.0, 7.0]])
    state, action, reward, discount, next_state = (jnp.array([x]) for x in (0, 1, 1.0, 0.5, 1))
    transition = Transition(state, action, reward, discount, next_state, jnp.ones((1, 2)))
    # Online at state 1: both heads choose action 0. Targets there: 2 * 3 + 5 = 11, and 2 * 0 + 8 = 8.
    # y = 1 + .5 * (11, 8) = (6.5, 5). Q(0, 1) = (2, 4). Errors (4.5, 1).
    after, metrics, _ = agent.update(learner, transition)
    np.testing.assert_allclose(metrics.loss, (0.5 * 4.5**2 + 0.5) / 2, rtol=1e-6)
    gradient = after.opt_state[0].mu.layers[0].weight / 0.1
    np.testing.assert_allclose(gradient, [[[0, -4.5], [0, -1.0]], [[0, 0], [0, 0]]], rtol=1e-5)


@pytest.mark.parametrize("kind", STATES)
def test_over_all_states_every_head_and_action_has_the_scale_and_no_mean(kind):
    agent = compiled_agent(AgentConfig(num_heads=4, prior_scale=3.0), Encoding(kind, STATES[kind]), 3)
    params = without_learned(agent.init(KEY).params)
    values = values_of(agent, params, jnp.arange(STATES[kind]))
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(values.std(axis=0), 3.0, rtol=1e-4)
    # Heads and actions are different functions.
    together = np.corrcoef(values.reshape(STATES[kind], -1).T)
    assert np.abs(together - np.eye(12)).max() < 0.99


@pytest.mark.parametrize(
    ("encoding", "observations"),
    [
        (Encoding("vector", 5), np.random.default_rng(0).normal(7, [0.01, 1, 100, 0, 1], (64, 5)).astype("f")),
        (Encoding("bytes", 6), np.random.default_rng(0).integers(0, 9, (64, 6)).astype(np.uint8)),
        pytest.param(
            Encoding("pictures", 4 * 84 * 84),
            np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84)).astype(np.uint8),
            marks=pytest.mark.integration,
        ),
    ],
    ids=lambda x: getattr(x, "kind", ""),
)
def test_over_the_observations_that_it_was_shown_so_has_any_other(encoding, observations):
    options = {"hidden": (8,), "num_heads": 3, "prior_scale": 0.5}
    agent = compiled_agent(AgentConfig(**options), encoding, 2, kernels=False)
    params = agent.fit(agent.init(KEY).params, jnp.asarray(observations), *no_bounds(encoding.size))
    values = values_of(agent, without_learned(params), observations)
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(values.std(axis=0), 0.5, rtol=1e-3)


def test_an_observation_that_never_changes_has_no_prior():
    """Nothing is divided by the rounding of a standard deviation that should be 0."""
    agent = compiled_agent(AgentConfig(num_heads=3, prior_scale=2.0), VECTOR, 2)
    params = agent.fit(agent.init(KEY).params, jnp.full((40, 2), 0.3), *no_bounds(2))
    np.testing.assert_allclose(values_of(agent, without_learned(params), jnp.full((1, 2), 0.3)), 0)


@pytest.mark.parametrize("options", [{}, {"trunk_hidden": (6,)}, {"mask_probability": 0.5}], ids=str)
def test_a_thousand_updates_leave_it_alone(options):
    _, agent = small_agent(prior_scale=1.0, target_period_updates=10, learning_rate=0.01, **options)
    learner = agent.init(KEY)
    learner = learner._replace(params=agent.fit(learner.params, batch(3, 50).obs, *no_bounds(2)))
    update = jax.jit(agent.update)
    after = learner
    for seed in range(1000):
        after, _, _ = update(after, batch(3, seed=seed % 7))
    assert trees_equal(after.params.prior, learner.params.prior)
    assert not trees_equal(after.params.layers, learner.params.layers)
    # It is one for both networks: the target's parameters have none of their own, and nor has the optimizer.
    assert after.target_params.prior is None
    assert all(moments.prior is None for moments in (after.opt_state[0].mu, after.opt_state[0].nu))
    assert trees_equal(after.target_params.layers, after.params.layers)  # copied by the thousandth


@pytest.mark.parametrize(
    "encoding", [Encoding("one_hot", 6), Encoding("thermometer", 6), VECTOR], ids=lambda e: e.kind
)
def test_one_head_alone_says_what_it_says_among_all(encoding):
    agent = compiled_agent(AgentConfig(num_heads=3, hidden=(4,), prior_scale=5.0), encoding, 2)
    params = agent.init(KEY).params
    observations = jnp.arange(6) if encoding.num_states else jax.random.normal(KEY, (6, 2))
    act = jax.jit(lambda params, head, obs: agent.act(KEY, params, head, obs, None))
    some = params.only(jnp.array([2, 0]))
    for obs, q in zip(observations, values_of(agent, params, observations), strict=True):
        chosen = [int(act(params, head, obs)) for head in range(3)]
        assert chosen == q.argmax(axis=1).tolist()
        assert [int(act(some, head, obs)) for head in range(2)] == [chosen[2], chosen[0]]


@pytest.mark.integration
def test_a_batch_of_pictures_is_learned_from_with_its_prior():
    """The fast way through a batch has the loss of the values that a belief shows."""
    config = AgentConfig(
        **{**vars(ATARI_AGENTS["boot-prior"]), "num_heads": 2, "hidden": (8,), "prior_scale": 2.0}
    )
    agent = compiled_agent(config, Encoding("pictures", 4 * 84 * 84), 3, kernels=False)
    rng = np.random.default_rng(0)
    obs, next_obs = (jnp.asarray(rng.integers(0, 256, (3, 4, 84, 84)).astype(np.uint8)) for _ in range(2))
    learner = agent.init(KEY)
    params = agent.fit(learner.params, obs, *no_bounds(math.prod(obs.shape[1:])))
    assert isinstance(params.prior, PriorNetwork)
    action, reward = jnp.array([0, 2, 1]), jnp.array([1.0, 0.0, -1.0])
    transitions = Transition(obs, action, reward, jnp.full(3, 0.9), next_obs, jnp.ones((3, 2)))
    _, metrics, _ = agent.update(learner._replace(params=params), transitions)
    q, q_next = values_of(agent, params, obs), values_of(agent, params, next_obs)
    # The target network has just been copied, so that double-Q is the maximum.
    error = (np.asarray(reward)[:, None] + 0.9 * q_next.max(axis=2)) - q[np.arange(3), :, np.asarray(action)]
    loss = np.where(np.abs(error) <= 1, 0.5 * error**2, np.abs(error) - 0.5)
    np.testing.assert_allclose(metrics.loss, loss.mean(), rtol=1e-4)
    assert np.abs(error).max() > 1


def test_without_a_prior_nothing_is_drawn_for_one():
    """The paper's agents have the bits that they had."""
    _, plain = small_agent()
    _, with_prior = small_agent(prior_scale=1.0)
    params = with_prior.init(KEY).params
    assert plain.init(KEY).params.prior is None
    assert trees_equal(plain.init(KEY).params.layers, params.layers)
    learner = linear_learner(small_agent(hidden=())[1], np.zeros((3, 2, 2)), np.zeros((3, 2, 2)))
    assert learner.params.prior is None


def test_heads_tell_states_apart_from_the_start_if_asked_to():
    spreads = []
    for unit_fan_in in (False, True):
        config = AgentConfig(num_heads=4, initial_spread=0.0, unit_fan_in=unit_fan_in)
        agent = compiled_agent(config, Encoding("one_hot", 900), 2)
        params = agent.init(KEY).params
        assert np.abs(params.layers[0].weight).max() == pytest.approx(1 if unit_fan_in else 1 / 30, rel=1e-3)
        spreads.append(values_of(agent, params, jnp.arange(900)).std(axis=0).mean())
    assert spreads[1] > 5 * spreads[0]


def test_the_first_head_has_the_largest_prior_and_the_last_the_smallest():
    config = AgentConfig(num_heads=3, prior_scale=2.0, prior_range=100.0)
    assert config.prior_scales == pytest.approx((2.0, 0.2, 0.02))
    expected = [[2.0] * 2, [0.2] * 2, [0.02] * 2]
    seen = jax.random.normal(jax.random.key(1), (200, 2))
    for encoding, observations in ((Encoding("one_hot", 40), jnp.arange(40)), (VECTOR, seen)):
        agent = compiled_agent(config, encoding, 2)
        params = agent.fit(agent.init(KEY).params, observations, *no_bounds(encoding.size))
        found = values_of(agent, without_learned(params), observations).std(axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert AgentConfig(num_heads=1, prior_scale=2.0, prior_range=9.0).prior_scales == (2.0,)


def test_only_explorers_have_priors():
    config = AgentConfig(num_heads=5, prior_scale=2.0, prior_range=10.0, explorer_share=0.4)
    assert (config.num_explorers, config.num_voters) == (2, 3)
    assert config.prior_scales == pytest.approx((2.0, 0.2, 0, 0, 0))
    agent = compiled_agent(config, Encoding("one_hot", 40), 2)
    found = values_of(agent, without_learned(agent.init(KEY).params), jnp.arange(40)).std(axis=0)
    np.testing.assert_allclose(found, [[2.0] * 2, [0.2] * 2, [0.0] * 2, [0.0] * 2, [0.0] * 2], rtol=1e-3)
    assert AgentConfig(num_heads=1, explorer_share=0.5).num_voters == 1
