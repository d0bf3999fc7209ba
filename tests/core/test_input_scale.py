"""Inputs of comparable ranges: by bounds, by random play, and the same for acting, learning and the prior."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AGENTS, GYM_AGENTS, AgentConfig
from bootdqn.core.networks import fitted_scale
from bootdqn.envs.spaces import Observations, space_layout
from bootdqn.envs.vector import make_envs
from bootdqn.types import Encoding
from helpers import batch, small_agent, trees_equal
from small_runs import TINY, host_loop

KEY = jax.random.key(0)
INF = np.inf


def test_ranges_become_minus_one_to_one_by_hand():
    seen = jnp.array([[0.0, 2.0, 5.0, 0.0], [1.0, 6.0, 5.0, 0.5]])
    low, high = jnp.array([-1.0, -INF, -INF, 0.0]), jnp.array([3.0, INF, INF, INF])
    scale = fitted_scale(seen, low, high)
    # By the bounds -1 and 3; by what was seen, 2 to 6; never changed, so as the widest; with one bound, 0 to 0.5.
    np.testing.assert_allclose(scale.shift, [-1.0, -4.0, -5.0, -0.25])
    np.testing.assert_allclose(scale.scale, [0.5, 0.5, 0.5, 4.0])
    np.testing.assert_allclose(scale(seen[1]), [0.0, 1.0, 0.0, 1.0])
    alone = fitted_scale(jnp.full((3, 1), 7.0), jnp.array([-INF]), jnp.array([INF]))
    np.testing.assert_allclose((alone.shift[0], alone.scale[0]), (-7.0, 1.0))


def test_small_codes_in_bytes_are_not_lost():
    """A space of bytes whose entries are codes from 0 to 10, as grid worlds have it."""
    agent = make_agent(AgentConfig(num_heads=2, hidden=(4,), scale_inputs=True), Encoding("bytes", 3), 2)
    seen = np.random.default_rng(0).integers(0, 11, (64, 3)).astype(np.uint8)
    params = agent.fit(agent.init(KEY).params, jnp.asarray(seen), jnp.full(3, -INF), jnp.full(3, INF))
    scaled = jax.vmap(lambda obs: params.inputs(obs.astype(jnp.float32) / 255))(jnp.asarray(seen))
    np.testing.assert_allclose((scaled.min(), scaled.max()), (-1, 1), atol=1e-5)


@pytest.mark.parametrize(
    ("space", "low", "high"),
    [
        (spaces.Box(np.array([-1, 0], "f"), np.array([2, 5], "f")), [-1, 0], [2, 5]),
        (spaces.Box(-3.4e38, 3.4e38, (2,)), [-INF, -INF], [INF, INF]),
        (spaces.Box(0, 255, (2,), np.uint8), [-INF, -INF], [INF, INF]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 4, (1,))]), [-1, -1, 0], [1, 1, 4]),
        (
            spaces.Dict(a=spaces.MultiBinary(2), b=spaces.Box(0, 255, (1,), np.uint8)),
            [-1, -1, -INF],
            [1, 1, INF],
        ),
    ],
    ids=str,
)
def test_bounds_are_those_of_the_space(space, low, high):
    found = Observations(space_layout(space), space=space).bounds
    np.testing.assert_array_equal(found, [low, high])


@pytest.mark.integration
def test_acting_learning_and_the_prior_read_the_same_inputs():
    """An agent that scales is the one that does not, on observations that were scaled before."""
    options = {"prior_scale": 1.0, "hidden": (5,)}
    _, scaling = small_agent(scale_inputs=True, **options)
    _, plain = small_agent(**options)
    low, high = jnp.array([0.0, -10.0]), jnp.array([4.0, 30.0])
    by_hand = lambda obs: (obs - jnp.array([[2.0, 10.0]])) / jnp.array([[2.0, 20.0]])  # noqa: E731
    data = batch(3, 32)
    before = data._replace(obs=by_hand(data.obs), next_obs=by_hand(data.next_obs))
    ours, theirs = scaling.init(KEY), plain.init(KEY)
    ours = ours._replace(params=scaling.fit(ours.params, data.obs, low, high))
    theirs = theirs._replace(params=plain.fit(theirs.params, before.obs, low, high))
    fixed = ours.params.inputs
    for _ in range(3):
        ours, our_metrics, _ = scaling.update(ours, data)
        theirs, their_metrics, _ = plain.update(theirs, before)
        np.testing.assert_allclose(our_metrics, their_metrics, rtol=1e-5)
    found = scaling.belief(ours.params, data.obs[0]).q
    np.testing.assert_allclose(found, plain.belief(theirs.params, before.obs[0]).q, rtol=1e-4)
    assert trees_equal(ours.params.inputs, fixed)
    assert ours.target_params.inputs is None
    action = scaling.act(KEY, ours.params, jnp.int32(1), data.obs[0], None)
    assert int(action) == int(np.argmax(found[1]))


def test_a_run_scales_by_the_bounds_of_its_environment():
    config = dataclasses.replace(GYM_AGENTS["boot"], **TINY, scale_inputs=True)
    loop = host_loop(make_envs("MountainCar-v0"), config, seed=0, steps=50)
    loop.begin()
    space = gymnasium.make("MountainCar-v0").observation_space
    assert isinstance(space, spaces.Box)
    inputs = loop.params()[0].inputs
    np.testing.assert_allclose(inputs(space.low), [-1, -1], atol=1e-6)
    np.testing.assert_allclose(inputs(space.high), [1, 1], atol=1e-6)


def test_agents_of_the_paper_and_states_do_without():
    assert not any(agent.scale_inputs for agent in AGENTS.values())
    agent = make_agent(AgentConfig(num_heads=2, scale_inputs=True), Encoding("one_hot", 4), 2)
    assert agent.init(KEY).params.inputs is None
