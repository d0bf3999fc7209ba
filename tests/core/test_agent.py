"""The agent against hand-computed numbers and against bugs that public implementations have."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AGENTS, AgentConfig
from bootdqn.core.masks import draw_noise
from bootdqn.core.networks import NOT_FOLLOWED, trained_part
from bootdqn.core.update import make_optimizer
from bootdqn.errors import UserError
from bootdqn.types import Encoding, Transition
from helpers import VECTOR, batch, linear_learner, small_agent, trees_equal

UNUSED = jnp.float32(0)
"""The best rest of an episode, for agents whose values are not bounded by it."""


def gradient_of(agent, learner, transitions):
    """The gradient an update takes, read off a plain gradient step: Adam's first moment is a tenth of it."""
    after, _, _ = agent.update(learner, transitions)
    return jax.tree.map(lambda mu: mu / 0.1, after.opt_state[0].mu)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_gradient_and_loss_by_hand(wrap):
    # Two linear heads, one transition; Q_k(s, a) = W_k[a] @ s.
    agent = make_agent(AgentConfig(num_heads=2, hidden=(), batch_size=1), VECTOR, 2)
    weight = [[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 0.0]]]
    target_weight = [[[5.0, 0.0], [0.0, 7.0]], [[1.0, 1.0], [3.0, 3.0]]]
    learner = linear_learner(agent, weight, target_weight)
    transition = batch(
        2, 1, obs=[[1, 2]], action=[1], reward=[1], discount=[0.5], next_obs=[[3, 1]], mask=[[1.0, 0.5]]
    )
    # Online at s' = (3, 1): head 0 (3, 1) and head 1 (6, 0) both choose action 0; targets value it 15 and 4.
    # y = 1 + .5 * (15, 4) = (8.5, 3). Q(s, 1) = (2, 0). Errors (6.5, 3).
    _, metrics, _ = wrap(agent.update)(learner, transition)
    np.testing.assert_allclose(metrics.loss, (0.5 * 6.5**2 + 0.5 * 0.5 * 3**2) / 2, rtol=1e-6)
    np.testing.assert_allclose(metrics.q_mean, 1.0, rtol=1e-6)
    np.testing.assert_allclose(metrics.q_spread, 1.0, rtol=1e-6)
    gradient = gradient_of(agent, learner, transition).layers[0]
    # -mask * error * s for the action taken, nothing for the other.
    np.testing.assert_allclose(gradient.weight, [[[0, 0], [-6.5, -13]], [[0, 0], [-1.5, -3]]], rtol=1e-5)
    np.testing.assert_allclose(gradient.bias, [[0, -6.5], [0, -1.5]], rtol=1e-5)


def test_an_action_gap_by_hand():
    # As above, but for action 0, which the target network takes for the worse one.
    agent = make_agent(AgentConfig(num_heads=2, hidden=(), batch_size=1, action_gap=0.5), VECTOR, 2)
    weight = [[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 0.0]]]
    target_weight = [[[5.0, 0.0], [0.0, 7.0]], [[1.0, 1.0], [3.0, 3.0]]]
    learner = linear_learner(agent, weight, target_weight)
    transition = batch(
        2, 1, obs=[[1, 2]], action=[0], reward=[1], discount=[0.5], next_obs=[[3, 1]], mask=[[1.0, 0.5]]
    )
    # The target network's values at s = (1, 2): (5, 14) and (3, 9). y = (8.5, 3) - .5 * (9, 6) = (4, 0).
    # Q(s, 0) = (1, 2). Errors (3, -2).
    _, metrics, _ = jax.jit(agent.update)(learner, transition)
    np.testing.assert_allclose(metrics.loss, (0.5 * 3**2 + 0.5 * 0.5 * 2**2) / 2, rtol=1e-6)
    gradient = gradient_of(agent, learner, transition).layers[0]
    np.testing.assert_allclose(gradient.weight, [[[-3, -6], [0, 0]], [[1, 2], [0, 0]]], rtol=1e-5)


def test_values_settle_at_wider_gaps_with_the_same_best_action():
    """One state, one step: rewards 1 and 0.9 become values that differ by 1 / (1 - 0.75) times as much."""
    _, agent = small_agent(action_gap=0.75, hidden=(), learning_rate=0.01, target_period_updates=5)
    learner = agent.init(jax.random.key(0))
    obs, action = np.tile([1.0, 0.0], (5, 1)), [0, 1, 0, 1, 1]
    data = batch(3, obs=obs, action=action, reward=np.where(action, 0.9, 1.0), discount=np.zeros(5), next_obs=obs)

    def some_updates(learner):
        return jax.lax.fori_loop(0, 4000, lambda _, learner: agent.update(learner, data)[0], learner)

    q = agent.belief(jax.jit(some_updates)(learner).params, jnp.array([1.0, 0.0])).q
    np.testing.assert_allclose(q, np.tile([1.0, 0.6], (3, 1)), atol=0.01)


@pytest.mark.parametrize("trunk_hidden", [(), (6,)], ids=["separate", "shared"])
def test_a_masked_head_gets_exactly_no_gradient(trunk_hidden):
    _, agent = small_agent(trunk_hidden=trunk_hidden)
    learner = agent.init(jax.random.key(0))
    mask = np.ones((5, 3))
    mask[:, 1] = 0
    masked = gradient_of(agent, learner, batch(3, mask=mask))
    for layer in masked.layers:
        assert not np.any(layer.weight[1])
        assert not np.any(layer.bias[1])
        assert np.any(layer.weight[0])
        assert np.any(layer.weight[2])


def test_fractional_masks_scale_a_heads_gradient():
    _, agent = small_agent()
    learner = agent.init(jax.random.key(0))
    full = gradient_of(agent, learner, batch(3))
    part = gradient_of(agent, learner, batch(3, mask=np.tile([1.0, 0.25, 3.0], (5, 1))))
    for a, b in zip(full.layers, part.layers, strict=True):
        np.testing.assert_allclose(b.weight[1], 0.25 * a.weight[1], rtol=1e-4, atol=1e-8)
        np.testing.assert_allclose(b.weight[2], 3 * a.weight[2], rtol=1e-4, atol=1e-8)


def test_each_sample_has_its_own_mask():
    _, agent = small_agent()
    learner = agent.init(jax.random.key(0))
    data = batch(3)
    kept = data._replace(mask=data.mask.at[:3].set(0))
    only = jax.tree.map(lambda x: x[3:], data)
    # The mean runs over the whole batch: 2 of 5 samples.
    a, b = gradient_of(agent, learner, kept), gradient_of(agent, learner, only)
    np.testing.assert_allclose(a.layers[0].weight, 0.4 * b.layers[0].weight, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("scaled", [True, False], ids=["boot", "boot+"])
def test_trunk_gradient_is_the_mean_over_heads_and_head_gradients_are_whole(scaled):
    _, agent = small_agent(trunk_hidden=(6,), scale_trunk_gradient=scaled)
    learner = agent.init(jax.random.key(0))
    together = gradient_of(agent, learner, batch(3))
    _, unscaled = small_agent(trunk_hidden=(6,), scale_trunk_gradient=False)
    same = unscaled.init(jax.random.key(0))
    alone = []
    for head in range(3):
        mask = np.zeros((5, 3))
        mask[:, head] = 1
        alone.append(gradient_of(unscaled, same, batch(3, mask=mask)))
    total = sum(np.asarray(g.trunk.layers[0].weight) for g in alone)
    np.testing.assert_allclose(
        together.trunk.layers[0].weight, total / 3 if scaled else total, rtol=1e-4, atol=1e-7
    )
    for head in range(3):
        np.testing.assert_allclose(
            together.layers[0].weight[head], alone[head].layers[0].weight[head], rtol=1e-4, atol=1e-7
        )


def test_every_head_learns_against_its_own_target():
    _, agent = small_agent(num_heads=2, hidden=(), batch_size=1)
    weight = np.zeros((2, 2, 2))
    target = np.zeros((2, 2, 2))
    transition = batch(2, 1, obs=[[1, 0]], action=[0], reward=[0], discount=[1], next_obs=[[1, 0]])
    learner = linear_learner(agent, weight, target)
    # Action 0 is online's choice at a tie; raise its value in head 1's target network only.
    target[1, 0, 0] = 4.0
    moved = linear_learner(agent, weight, target)
    np.testing.assert_array_equal(gradient_of(agent, learner, transition).layers[0].weight, 0)
    gradient = gradient_of(agent, moved, transition).layers[0].weight
    np.testing.assert_array_equal(gradient[0], 0)
    np.testing.assert_allclose(gradient[1], [[-4, 0], [0, 0]], rtol=1e-5)


def test_target_network_is_copied_every_period():
    _, agent = small_agent(target_period_updates=3)
    learner = agent.init(jax.random.key(0))
    first = learner.target_params
    for count in (1, 2):
        learner, _, _ = agent.update(learner, batch(3))
        assert int(learner.updates) == count
        assert trees_equal(learner.target_params, first)
        assert not trees_equal(learner.params, first)
    learner, _, _ = agent.update(learner, batch(3))
    assert trees_equal(learner.target_params, learner.params)


def test_an_update_changes_what_the_committed_head_does():
    _, agent = small_agent(num_heads=1, hidden=(), learning_rate=1.0, batch_size=1)
    learner = linear_learner(agent, [[[1.0, 0.0], [0.0, 0.0]]], np.zeros((1, 2, 2)))
    actor, obs, never = jnp.int32(0), jnp.array([1.0, 0.0]), jnp.float32(0)
    assert agent.act(jax.random.key(0), learner.params, actor, obs, never) == 0
    punished = batch(1, 1, obs=[[1, 0]], action=[0], reward=[-10], discount=[0], next_obs=[[0, 0]])
    learner, _, _ = agent.update(learner, punished)
    learner, _, _ = agent.update(learner, punished)
    assert agent.act(jax.random.key(0), learner.params, actor, obs, never) == 1


# Head 0 prefers action 0, heads 1 and 2 action 1.
SPLIT = np.array([[[1.0, 0], [0, 0]], [[0, 0], [1.0, 0]], [[0, 0], [1.0, 0]]])


def actions(acting, head, epsilon=0.0):
    _, agent = small_agent(hidden=(), acting=acting)
    learner = linear_learner(agent, SPLIT, SPLIT)
    act = jax.vmap(
        lambda key: agent.act(key, learner.params, jnp.int32(head), jnp.array([1.0, 0]), jnp.float32(epsilon))
    )
    return np.asarray(act(jax.random.split(jax.random.key(0), 2000)))


def test_who_acts():
    assert set(actions("committed_head", 0)) == {0}
    assert set(actions("committed_head", 1)) == {1}
    for all_heads in ("vote", "ucb", "ids"):
        assert set(actions(all_heads, 0)) == {1}
    assert abs(np.mean(actions("head_per_step", 0)) - 2 / 3) < 0.06


@pytest.mark.parametrize("acting", ["committed_head", "vote", "head_per_step", "ucb", "ids"])
def test_epsilon_composes_with_every_way_of_acting(acting):
    calm = np.mean(actions(acting, 0))
    assert abs(np.mean(actions(acting, 0, epsilon=0.5)) - (0.5 * calm + 0.25)) < 0.06
    assert abs(np.mean(actions(acting, 0, epsilon=1.0)) - 0.5) < 0.06


def test_heads_are_drawn_evenly():
    _, agent = small_agent()
    heads = np.asarray(
        jax.vmap(agent.draw_head, in_axes=(0, None))(jax.random.split(jax.random.key(0), 3000), None)
    )
    assert np.abs(np.bincount(heads, minlength=3) - 1000).max() < 150


def test_belief_and_act_read_the_same_network():
    _, agent = small_agent()
    learner = agent.init(jax.random.key(0))
    obs = jnp.array([0.4, 0.2])
    belief = agent.belief(learner.params, obs)
    for head in range(3):
        action = agent.act(jax.random.key(1), learner.params, jnp.int32(head), obs, jnp.float32(0))
        assert action == np.argmax(belief.q[head])


def test_seeds_differ_and_repeat():
    _, agent = small_agent()
    a, b, again = (agent.init(jax.random.key(seed)) for seed in (0, 1, 0))
    assert trees_equal(a, again)
    for x, y in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True):
        assert not np.any(np.asarray(x) == np.asarray(y))


class Numbers(NamedTuple):
    """Parameters of a network that is a trunk alone."""

    trunk: jax.Array


def test_centred_rmsprop_is_the_original_one():
    config = AgentConfig(optimizer="rmsprop", learning_rate=0.1, batch_size=4)
    optimizer = make_optimizer(config)
    params = Numbers(jnp.array([1.0, -2.0]))
    state = optimizer.init(params)
    weight, g, g2 = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for mean_gradient in ([0.5, -0.3], [0.1, 0.2], [-0.4, 0.0]):
        params, state = optimizer.step(params, state, Numbers(jnp.array(mean_gradient)))
        # The original accumulates the gradient summed over the batch and adds 0.01 under the root.
        total = 4 * np.array(mean_gradient)
        g = 0.95 * g + 0.05 * total
        g2 = 0.95 * g2 + 0.05 * total**2
        weight = weight - 0.1 * total / np.sqrt(g2 - g**2 + 0.01)
        np.testing.assert_allclose(params.trunk, weight, rtol=1e-5)


def test_adam_first_step_by_hand():
    optimizer = make_optimizer(AgentConfig(learning_rate=0.01))
    params = Numbers(jnp.array([1.0, 1.0]))
    params, _ = optimizer.step(params, optimizer.init(params), Numbers(jnp.array([3.0, -0.2])))
    np.testing.assert_allclose(params.trunk, [0.99, 1.01], rtol=1e-5)


@pytest.mark.integration
def test_no_compiler_runs_for_agents_without_pictures(monkeypatch):
    def asked():
        raise AssertionError("asked for kernels")

    monkeypatch.setattr("bootdqn.core.agent.why_not", asked)
    for encoding in (VECTOR, Encoding("bytes", 2), Encoding("one_hot", 2), Encoding("thermometer", 2)):
        agent = make_agent(AgentConfig(optimizer="rmsprop", num_heads=2), encoding, 2)
        assert agent.kernels is None
    agent = make_agent(AgentConfig(num_heads=3), VECTOR, 2)
    agent.update(agent.init(jax.random.key(0)), batch(3))


def test_named_agents_are_configurations_of_one():
    assert set(AGENTS) == {"dqn", "ensemble", "thompson", "boot", "boot+", "boot-prior"}
    assert all(agent.prior_scale == 0 for name, agent in AGENTS.items() if name != "boot-prior")
    assert AGENTS["dqn"].num_heads == 1
    assert AGENTS["dqn"].epsilon_start > AGENTS["dqn"].epsilon_end > 0
    assert not AGENTS["boot+"].scale_trunk_gradient
    same_but = {
        "thompson": {"acting", "initial_spread"},
        "ensemble": {"acting", "learning_rate"},
        "boot+": {"scale_trunk_gradient"},
        "dqn": {"num_heads", "epsilon_start", "epsilon_end", "epsilon_anneal_steps"},
    }
    for name, changed in same_but.items():
        boot, other = dataclasses.asdict(AGENTS["boot"]), dataclasses.asdict(AGENTS[name])
        assert {field for field in boot if boot[field] != other[field]} == changed


@pytest.mark.integration
def test_a_trunk_of_ones_own():
    config = AgentConfig(num_heads=3, hidden=())
    trunk = lambda key: eqx.nn.MLP(2, 4, 8, 1, key=key)  # noqa: E731
    agent = make_agent(config, VECTOR, 2, trunk)
    learner, _, _ = agent.update(agent.init(jax.random.key(0)), batch(3))
    assert agent.belief(learner.params, jnp.zeros(2)).q.shape == (3, 2)
    before = agent.init(jax.random.key(0))
    assert not trees_equal(before.params.trunk, learner.params.trunk)


def test_arrays_of_a_trunk_that_are_not_trained_stay_what_they_are():
    class Permuted(eqx.Module):
        order: jax.Array

        def __call__(self, x):
            return x[self.order]

    config = AgentConfig(num_heads=2, hidden=())
    obs = jnp.array([0.25, -2.0])
    agents = [make_agent(config, VECTOR, 2, trunk) for trunk in (lambda key: Permuted(jnp.array([1, 0])), None)]
    permuted, straight = (
        agent.belief(agent.init(jax.random.key(0)).params, o).q
        for agent, o in zip(agents, (obs, obs[::-1]), strict=True)
    )
    np.testing.assert_array_equal(permuted, straight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, r"heads must be 1 to 2\*\*20, got 0"),
        ({"mask_probability": 0.0}, r"mask_probability must be in \(0, 1\], got 0.0"),
        ({"mask_probability": 1.5}, r"mask_probability must be in \(0, 1\], got 1.5"),
        ({"batch_size": -3}, "batch_size must be at least 1, got -3"),
        ({"batch_size": 64, "replay_capacity": 32}, "must not exceed replay_capacity"),
        ({"hidden": (50, -1)}, r"hidden sizes must be 1 to 2\*\*20, got \[50, -1\]"),
        ({"learning_start_steps": -1}, "learning_start_steps must be at least 0, got -1"),
        ({"learning_rate": -0.1}, "learning_rate must be finite and not negative"),
        ({"learning_rate": float("nan")}, "learning_rate must be finite"),
        ({"discount": 1.01}, "discount must be in"),
        ({"initial_spread": float("inf")}, "initial_spread must be finite"),
        ({"prior_scale": -1.0}, "prior_scale must be finite and not negative, got -1.0"),
        ({"bound_width": -1.0}, "bound_width must be finite and not negative, got -1.0"),
        ({"return_noise": 0.0}, "return_noise must be finite and positive, got 0.0"),
        ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
        ({"n_steps": 200, "replay_capacity": 100}, r"n_steps \(200\) must not exceed replay_capacity \(100\)"),
        ({"redraw_probability": 1.1}, r"redraw_probability must be in \[0, 1\], got 1.1"),
        ({"priority_exponent": 1.5}, r"priority_exponent must be in \[0, 1\], got 1.5"),
        ({"importance_exponent": -0.1}, r"importance_exponent must be in \[0, 1\], got -0.1"),
        ({"prior_range": 0.5}, "prior_range must be at least 1, got 0.5"),
        ({"explorer_share": 0.0}, r"explorer_share must be in \(0, 1\], got 0.0"),
        ({"explorer_share": 0.5, "acting": "vote"}, "explorer_share is for the acting committed_head, not vote"),
        ({"head_candidates": 0}, "head_candidates must be at least 1, got 0"),
        ({"head_candidates": 2, "acting": "vote"}, "head_candidates is for heads that are followed for whole"),
        ({"reward_noise": -1.0}, "reward_noise must be finite and not negative, got -1.0"),
        ({"redraw_probability": 0.1, "acting": "vote"}, "redraw_probability is for the acting committed_head"),
        ({"target_period_updates": 10**11}, r"target_period_updates must be below 2\*\*31"),
        ({"epsilon_start": 1.0}, "epsilon goes from 1.0 to 0.0: give epsilon_anneal_steps"),
        ({"mask": "bernouli"}, "did you mean bernoulli?"),
        ({"acting": "committed"}, "did you mean committed_head?"),
    ],
)
def test_bad_configurations_say_what_is_wrong(options, message):
    with pytest.raises(UserError, match=message):
        AgentConfig(**options)


@pytest.mark.integration
def test_a_trunk_may_mix_precisions():
    class Mixed(eqx.Module):
        first: eqx.nn.Linear
        second: eqx.nn.Linear

        def __call__(self, x):
            return self.second(self.first(x).astype(jnp.bfloat16)).astype(jnp.float32)

    def trunk(key):
        return Mixed(eqx.nn.Linear(2, 3, key=key), eqx.nn.Linear(3, 4, dtype=jnp.bfloat16, key=key))

    config = AgentConfig(num_heads=2, hidden=(4,), batch_size=2)
    agent = make_agent(config, VECTOR, 2, trunk)
    learner = agent.init(jax.random.key(0))
    transitions = Transition(
        *(jnp.ones((2, 2)), jnp.array([0, 1]), jnp.ones(2), jnp.ones(2), jnp.ones((2, 2)), jnp.ones((2, 2)))
    )
    after, _, _ = agent.update(learner, transitions)
    assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, learner)


def test_dueling_heads_by_hand():
    # Two linear heads of two streams each: rows are stream by stream, and of the first only one number counts.
    _, agent = small_agent(num_heads=2, hidden=(), dueling=True)
    weight = [
        [[1.0, 0.0], [9.0, 9.0]],  # head 0, value: s[0]
        [[0.0, 4.0], [0.0, 0.0]],  # head 0, actions: 4 s[1] and 0, so 2 s[1] and -2 s[1] beyond their mean
        [[0.0, 3.0], [9.0, 9.0]],  # head 1, value: 3 s[1]
        [[1.0, 0.0], [2.0, 0.0]],  # head 1, actions: s[0] and 2 s[0]
    ]
    params = linear_learner(agent, weight, weight).params
    q = agent.belief(params, jnp.array([5.0, 10.0])).q
    np.testing.assert_allclose(q, [[5 + 20, 5 - 20], [30 - 2.5, 30 + 2.5]])
    for head, best in ((0, 0), (1, 1)):
        assert agent.act(jax.random.key(0), params, jnp.int32(head), jnp.array([5.0, 10.0]), None) == best
    kept = params.only(jnp.array([1]))
    np.testing.assert_allclose(kept.layers[0].weight, weight[2:])


@pytest.mark.parametrize("options", [{}, {"dueling": True}], ids=str)
def test_a_trunk_with_features_of_every_head_acts_by_those_of_the_head_that_is_followed(options):
    class PerHead(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return jnp.einsum("kfi,i->kf", self.weight, x)

    config = AgentConfig(num_heads=3, hidden=(4,), **options)
    agent = make_agent(config, VECTOR, 5, lambda key: PerHead(jax.random.normal(key, (3, 6, 2))))
    params, obs = agent.init(jax.random.key(0)).params, jnp.array([1.0, -2.0])
    q = agent.belief(params, obs).q
    assert q.shape == (3, 5)
    chosen = [int(agent.act(jax.random.key(1), params, jnp.int32(head), obs, None)) for head in range(3)]
    assert chosen == np.argmax(q, axis=1).tolist()


def test_noise_is_a_reward_of_every_head():
    _, agent = small_agent(num_heads=2, hidden=(), batch_size=1, reward_noise=1.0)
    weight = [[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 0.0]]]
    learner = linear_learner(agent, weight, weight)
    transition = batch(2, 1, obs=[[1, 2]], action=[1], reward=[[1.0, -4.0]], discount=[0.0], next_obs=[[3, 1]])
    # Q(s, 1) = (2, 0), so errors are (-1, -4).
    np.testing.assert_allclose(agent.update(learner, transition)[1].loss, (0.5 * 1 + 0.5 * 16) / 2, rtol=1e-6)


def test_noise_is_drawn_for_every_head_and_added_to_clipped_rewards():
    config = AgentConfig(num_heads=4, clip_rewards=True, reward_noise=2.0)
    noise = draw_noise(jax.random.key(0), config.reward_noise, (5000, 4))
    assert noise is not None
    np.testing.assert_allclose(np.mean(noise), 0, atol=0.05)
    np.testing.assert_allclose(np.std(noise), 2, rtol=0.02)
    assert abs(np.corrcoef(np.asarray(noise).T)[0, 1]) < 0.05
    reward = np.array([7.0, -0.5], np.float32)
    np.testing.assert_allclose(config.stored_reward(reward, noise[:2]), np.array([[1.0], [-0.5]]) + noise[:2])
    assert draw_noise(jax.random.key(0), 0.0, (4,)) is None
    assert AgentConfig(clip_rewards=True).stored_reward(reward)[0] == 7  # clipped when it is learned from


def test_of_the_heads_that_are_drawn_the_one_with_the_best_recent_returns_is_followed():
    _, agent = small_agent(num_heads=4, head_candidates=2)
    learner, note = jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.note_return)
    draw = jax.jit(jax.vmap(agent.draw_head, in_axes=(0, None)))
    keys = jax.random.split(jax.random.key(1), 4000)

    def shares(params):
        return np.bincount(np.asarray(draw(keys, params)), minlength=4) / len(keys)

    params = learner.params
    np.testing.assert_allclose(shares(params), 1 / 4, atol=0.03)  # none is known
    for head, episode_return in ((0, -5.0), (1, 7.0), (2, 3.0)):
        params = note(params, jnp.int32(head), jnp.float32(episode_return), UNUSED)
    # Head 3 was never followed and beats all; then it is 1, 2, 0. The last of four is never the best of two.
    np.testing.assert_allclose(shares(params), [0, 2 / 6, 1 / 6, 3 / 6], atol=0.03)
    params = note(params, jnp.int32(3), jnp.float32(-100.0), UNUSED)
    np.testing.assert_allclose(shares(params), [1 / 6, 3 / 6, 2 / 6, 0], atol=0.03)
    params = note(params, jnp.int32(1), jnp.float32(-13.0), UNUSED)
    np.testing.assert_allclose(params.returns, [-5, 7 - 0.2 * 20, 3, -100], rtol=1e-6)
    after, _, _ = jax.jit(agent.update)(learner._replace(params=params), batch(4))
    np.testing.assert_array_equal(after.params.returns, params.returns)
    assert after.target_params.returns is None


def test_heads_that_are_drawn_alike_have_no_returns():
    _, agent = small_agent()
    params = agent.init(jax.random.key(0)).params
    assert params.returns is None
    assert params.best_rest is None
    noted = agent.note_return(params, jnp.int32(0), jnp.float32(1), UNUSED)
    assert trees_equal(noted, params)


def test_explorers_act_alone_and_others_by_their_majority():
    _, agent = small_agent(
        num_heads=5, hidden=(), explorer_share=0.4, epsilon_start=1.0, epsilon_end=0.25, epsilon_anneal_steps=10
    )
    # Linear heads of one state; heads 0 and 1 explore. Action 0 has a vote of head 2, and 2 of 3 voters prefer 1.
    weight = np.zeros((5, 2, 2))
    weight[:, :, 0] = [[3, 0], [0, 3], [2, 1], [0, 1], [0, 1]]
    learner = linear_learner(agent, weight, weight)
    obs = jnp.array([1.0, 0.0])
    keys = jax.random.split(jax.random.key(0), 8)
    act = jax.jit(jax.vmap(agent.act, in_axes=(0, None, None, None, None)))
    taken = [np.asarray(act(keys, learner.params, jnp.int32(head), obs, None)).tolist() for head in range(5)]
    assert taken == [[0] * 8, [1] * 8, [1] * 8, [1] * 8, [1] * 8]
    assert agent.belief(learner.params, obs).votes.tolist() == [1, 2]
    assert {int(agent.greedy(key, learner.params, obs)) for key in keys} == {1}
    found = [[float(agent.epsilon(jnp.int32(step), jnp.int32(head))) for step in (0, 5, 10)] for head in (1, 2)]
    assert found == [[0.25, 0.25, 0.25], [1.0, 0.625, 0.25]]


def test_values_are_bounded_by_the_best_rest_of_an_episode_and_the_prior():
    options = {"num_heads": 4, "prior_scale": 2.0, "prior_range": 4.0, "explorer_share": 0.5, "discount": 0.5}
    _, agent = small_agent(**options, hidden=(), bound_values=True, double_q=False)
    params = jax.jit(agent.init)(jax.random.key(0)).params
    assert float(params.best_rest) == 0
    for rest in (3.0, -2.0, 1.0):
        params = agent.note_return(params, jnp.int32(0), jnp.float32(9), jnp.float32(rest))
    assert float(params.best_rest) == 3
    # Without learned values below the bounds, targets are reward + discount * (3 + twice the prior).
    huge = jax.tree.map(lambda x: jnp.full_like(x, 100.0), trained_part(params))
    learner = jax.jit(agent.init)(jax.random.key(0))._replace(params=params, target_params=huge)
    transitions = Transition(
        jnp.ones((1, 2)), jnp.zeros(1, int), jnp.ones(1), jnp.full(1, 0.5), jnp.ones((1, 2)), jnp.ones((1, 4))
    )
    _, metrics, _ = jax.jit(agent.update)(learner, transitions)
    predicted = np.asarray(agent.belief(params, jnp.ones(2)).q)[:, 0]
    targets = 1 + 0.5 * (3 + 2 * np.array([2.0, 0.5, 0.0, 0.0]))
    np.testing.assert_allclose(metrics.loss, np.mean(0.5 * (targets - predicted) ** 2), rtol=1e-5)


def test_what_the_voters_return_counts_for_all_of_them():
    _, agent = small_agent(num_heads=5, explorer_share=0.4, head_candidates=5)
    params = jax.jit(agent.init)(jax.random.key(0)).params
    for head, episode_return in ((1, 4.0), (3, 10.0), (2, 20.0)):
        params = agent.note_return(params, jnp.int32(head), jnp.float32(episode_return), UNUSED)
    np.testing.assert_allclose(params.returns, [NOT_FOLLOWED, 4, 12, 12, 12], rtol=1e-6)
