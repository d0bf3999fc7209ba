"""Agents that see the state: posteriors, confidence sets and updates by hand; and that they learn, or do not."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import bootdqn
from bootdqn.envs.tabular_chains import RiverSwim, StochasticChain
from bootdqn.errors import UserError
from bootdqn.experiments.ucrl2_long import AliasedUCRL2
from bootdqn.loops.tabular import make_tabular_loop, play
from bootdqn.tabular.agents import (
    PSRL,
    RLSVI,
    TABULAR_AGENTS,
    UCBVI,
    UCRL2,
    Counts,
    EpsilonGreedy,
    QLearning,
    Trajectory,
    optimistic_transitions,
)
from bootdqn.tabular.mdp import MDP, Shape, plan, require_small

KEY = jax.random.key(0)
SHAPE = Shape(num_states=2, num_actions=2, horizon=3)
EPISODE = Trajectory(
    states=jnp.array([0, 1, 0]),
    actions=jnp.array([0, 1, 0]),
    rewards=jnp.array([1.0, -2.0, 4.0]),
    next_states=jnp.array([1, 0, 0]),
)


def seen(agent, *episodes):
    """The agent's counts after some episodes of `SHAPE`."""
    counts = agent.init(SHAPE)
    for episode in episodes:
        counts = agent.update(SHAPE, counts, episode)
    return counts


# What model-based agents remember and believe.


def test_counts_by_hand():
    counts = seen(PSRL(), EPISODE, EPISODE)
    expected = np.zeros((2, 2, 2))
    expected[0, 0] = [2, 2]  # each episode: once to state 1 and, with its last action, once to state 0
    expected[1, 1] = [2, 0]
    np.testing.assert_array_equal(counts.transitions, expected)
    np.testing.assert_allclose(counts.reward_mean, [[2.5, 0], [0, -2]])
    np.testing.assert_allclose(counts.reward_sum, [[10, 0], [0, -4]])
    np.testing.assert_array_equal(counts.visits, [[4, 0], [0, 2]])


def test_posterior_by_hand():
    agent = PSRL(prior_transitions=0.5, prior_reward=1.0, prior_precision=2.0, noise_precision=4.0)
    posterior = agent.posterior(seen(agent, EPISODE))
    np.testing.assert_array_equal(posterior.transitions, [[[1.5, 1.5], [0.5, 0.5]], [[0.5, 0.5], [1.5, 0.5]]])
    np.testing.assert_array_equal(posterior.mean_transitions[1], [[0.5, 0.5], [0.75, 0.25]])
    # State 0, action 0: two rewards that sum to 5. Precision 2 + 4 * 2 = 10, mean (2 * 1 + 4 * 5) / 10.
    np.testing.assert_allclose(posterior.reward_precision, [[10, 2], [2, 6]])
    np.testing.assert_allclose(posterior.reward_mean, [[2.2, 1], [1, (2 - 8) / 6]], rtol=1e-6)


def test_psrl_draws_from_the_posterior():
    """With one step to go, values are the rewards drawn; with two, transitions show as well."""
    agent, shape = PSRL(), Shape(2, 2, 2)
    counts = seen(agent, EPISODE)
    posterior = agent.posterior(counts)
    q = jax.vmap(lambda key: agent.plan(key, shape, counts, jnp.int32(1)))(jax.random.split(KEY, 4000))
    rewards = np.asarray(q[:, 1])
    error = 4 / np.sqrt(4000 * np.asarray(posterior.reward_precision))
    assert (np.abs(rewards.mean(axis=0) - posterior.reward_mean) < error).all()
    np.testing.assert_allclose(rewards.var(axis=0), 1 / posterior.reward_precision, rtol=0.12)
    best = rewards.max(axis=-1)
    shares = (np.asarray(q[:, 0]) - rewards - best[:, None, None, 0]) / (best[:, 1] - best[:, 0])[:, None, None]
    # The share of state 1 has a Beta distribution: after one visit each, Beta(2, 2).
    assert ((shares > -0.01) & (shares < 1.01)).mean() > 0.99
    assert np.median(shares[:, 0, 0]) == pytest.approx(0.5, abs=0.03)
    assert np.mean(shares[:, 0, 0] < 0.25) == pytest.approx(0.15625, abs=0.025)  # 3/16 - 2/64


# Optimism.


@st.composite
def distributions(draw_from):
    num_states = draw_from(st.integers(2, 6))
    weights = draw_from(st.lists(st.integers(0, 5), min_size=num_states, max_size=num_states).filter(any))
    values = draw_from(st.lists(st.integers(-4, 4), min_size=num_states, max_size=num_states))
    width = draw_from(st.integers(0, 30)) / 10
    return np.array(weights) / sum(weights), width, np.array(values, float)


@pytest.mark.integration
@settings(max_examples=60, deadline=None)
@given(distributions())
def test_optimistic_transitions_are_the_best_in_the_set(problem):
    estimate, width, values = problem
    before = estimate.copy()
    found = np.asarray(
        optimistic_transitions(jnp.asarray(estimate), jnp.asarray(width), jnp.asarray(values)), float
    )
    np.testing.assert_array_equal(estimate, before)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, abs=1e-5)
    assert np.abs(found - estimate).sum() <= width + 1e-5
    # The same as a linear program: p = estimate + up - down, sum(up + down) <= width.
    n = len(estimate)
    best = linprog(
        c=np.concatenate([-values, values]),
        A_ub=np.concatenate([np.ones((1, 2 * n)), np.concatenate([-np.eye(n), np.eye(n)], axis=1)]),
        b_ub=np.concatenate([[width], estimate]),
        A_eq=np.concatenate([np.ones(n), -np.ones(n)])[None],
        b_eq=[0.0],
    )
    assert found @ values == pytest.approx(estimate @ values - best.fun, abs=1e-4)


SMALL = Shape(num_states=3, num_actions=2, horizon=4)
ucrl2_plan = jax.jit(lambda counts, episode: UCRL2().plan(KEY, SMALL, counts, episode))
ucrl2_widths = jax.jit(lambda counts, episode: UCRL2().widths(SMALL, counts, episode))
plan_small = jax.jit(lambda transitions, rewards: plan(transitions, rewards, SMALL))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 50, 1000]), st.integers(1, 10**6))
def test_ucrl2_is_optimistic_when_the_truth_is_in_its_set(seed, most_visits, episode):
    rng, agent = np.random.default_rng(seed), UCRL2()
    mdp = MDP(
        transitions=rng.dirichlet(np.full(3, 0.5), (3, 2)),
        rewards=rng.random((3, 2)),
        reward_std=np.ones((3, 2)),
        start=0,
        horizon=SMALL.horizon,
    )
    visits = rng.integers(0, most_visits + 1, (3, 2))
    means = np.where(visits > 0, rng.normal(mdp.rewards, 1 / np.sqrt(np.maximum(visits, 1))), 0.0)
    counts = Counts(jnp.asarray(rng.multinomial(visits, mdp.transitions), jnp.float32), jnp.asarray(means))
    posterior = agent.posterior(counts)
    reward_width, transition_width = map(np.asarray, ucrl2_widths(counts, episode))
    distance = np.abs(np.asarray(posterior.mean_transitions) - mdp.transitions).sum(axis=-1)
    assume((np.abs(np.asarray(posterior.reward_mean) - mdp.rewards) <= reward_width).all())
    assume((distance <= transition_width).all())
    optimistic = np.asarray(ucrl2_plan(counts, episode))
    assert (optimistic >= mdp.optimal_q - 1e-4).all()
    estimated = plan_small(posterior.mean_transitions, jnp.minimum(posterior.reward_mean, 1.0))
    assert (optimistic >= np.asarray(estimated) - 1e-4).all()
    # Every step is optimistic about the same estimate, not about what the step after it has made of that.
    rewards = np.minimum(np.asarray(posterior.reward_mean) + reward_width, 1.0)
    values = np.zeros(3)
    for step in reversed(range(SMALL.horizon)):
        estimate = np.asarray(posterior.mean_transitions, float)
        best, added = np.argmax(values), transition_width / 2
        estimate[..., best] = np.minimum(estimate[..., best] + added, 1)
        for worst in np.argsort(values):
            if worst != best:
                excess = estimate.sum(axis=-1) - 1
                estimate[..., worst] = np.maximum(estimate[..., worst] - excess, 0)
        q = rewards + estimate @ values
        np.testing.assert_allclose(optimistic[step], q, atol=1e-4)
        values = q.max(axis=-1)


def test_ucrl2_widths_by_hand():
    agent, shape = UCRL2(delta=0.1, reward_constant=2.0, transition_constant=3.0), Shape(2, 2, 3)
    counts = seen(agent, EPISODE, EPISODE)
    rewards, transitions = agent.widths(shape, counts, jnp.int32(9))
    log = math.log(2 * 2 * 2 * 10 / 0.1)
    np.testing.assert_allclose(rewards, np.sqrt(2 * log / np.array([[4, 1], [1, 2]])), rtol=1e-6)
    np.testing.assert_allclose(transitions, np.sqrt(3 * 2 * log / np.array([[4, 1], [1, 2]])), rtol=1e-6)


def test_ucrl2_knows_the_largest_reward():
    agent = UCRL2(max_reward=0.7)
    q = agent.plan(KEY, SHAPE, agent.init(SHAPE), jnp.int32(1))
    np.testing.assert_allclose(q, 0.7 * np.array([3, 2, 1])[:, None, None] * np.ones((3, 2, 2)), rtol=1e-6)


def test_what_is_unknown_stays_tied():
    """After two episodes everything is possible: all actions are as good, and every one of them may be taken."""
    env, agent = StochasticChain(reward_std=0.0), UCRL2()
    counts = agent.init(env.mdp.shape)
    policy = jnp.full((15, 6, 2), 0.5)
    for episode in range(2):
        counts = agent.update(env.mdp.shape, counts, play(jax.random.fold_in(KEY, episode), env.mdp, policy))
    q = np.asarray(agent.plan(KEY, env.mdp.shape, counts, jnp.int32(3)))
    np.testing.assert_array_equal(q, np.broadcast_to(np.arange(15, 0, -1)[:, None, None], q.shape))


def test_ucbvi_by_hand():
    agent, shape = UCBVI(scale=0.5), Shape(2, 2, 2)
    counts = seen(agent, EPISODE)
    q = np.asarray(agent.plan(KEY, shape, counts, jnp.int32(8)))
    # Rewards: precision 1 + n, mean sum / (1 + n). Transitions: 2 + n counts with the prior.
    log = 2 * math.log(10)
    visits, means = np.array([[2, 0], [0, 1]]), np.array([[5 / 3, 0], [0, -1]])
    last = means + 0.5 * np.sqrt(log / (1 + visits))
    np.testing.assert_allclose(q[1], last, rtol=1e-5)
    values = last.max(axis=-1)
    expected = means[0, 0] + 0.5 * math.sqrt(log / 3) + 0.5 * math.sqrt(log / 4) + values.mean()
    assert q[0, 0, 0] == pytest.approx(expected, rel=1e-5)
    # Without a bonus it is the expected problem.
    plain = UCBVI(scale=0.0).plan(KEY, shape, counts, jnp.int32(8))
    posterior = agent.posterior(counts)
    np.testing.assert_allclose(plain, plan(posterior.mean_transitions, posterior.reward_mean, shape), rtol=1e-6)


# Least squares and Q-learning.


def test_rlsvi_without_noise_is_least_squares():
    rng = np.random.default_rng(0)
    agent, shape = RLSVI(perturbation=0.0, prior_precision=0.5, noise_precision=2.0), Shape(3, 2, 4)
    data = [
        (rng.integers(3, size=4), rng.integers(2, size=4), rng.normal(size=4), rng.integers(3, size=4))
        for _ in range(6)
    ]
    counts = agent.init(shape)
    for episode in data:
        counts = agent.update(shape, counts, Trajectory(*map(jnp.asarray, episode)))
    found = agent.plan(KEY, shape, counts, jnp.int32(7))
    states, actions, rewards, moved = map(np.concatenate, zip(*data, strict=True))
    design = np.eye(6)[states * 2 + actions]
    # The prior is one more datum a feature: a 0 of weight 0.5 / 2.
    rows = np.concatenate([design, math.sqrt(0.5 / 2.0) * np.eye(6)])
    values = np.zeros(3)
    for step in (3, 2, 1, 0):
        targets = np.concatenate([rewards + values[moved], np.zeros(6)])
        q = np.linalg.lstsq(rows, targets, rcond=None)[0].reshape(3, 2)
        np.testing.assert_allclose(found[step], q, rtol=1e-4, atol=1e-5)
        values = q.max(axis=-1)


def test_rlsvi_perturbs_as_its_posterior_is_wide():
    agent, shape = RLSVI(prior_precision=2.0, noise_precision=3.0), Shape(2, 2, 1)
    counts = seen(agent, EPISODE)
    q = jax.vmap(lambda key: agent.plan(key, shape, counts, jnp.int32(1)))(jax.random.split(KEY, 4000))[:, 0]
    np.testing.assert_allclose(q.var(axis=0), [[1 / 8, 1 / 2], [1 / 2, 1 / 5]], rtol=0.12)
    np.testing.assert_allclose(q.mean(axis=0), [[15 / 8, 0], [0, -6 / 5]], atol=0.05)


def test_q_learning_by_hand():
    agent = QLearning(initial_reward=1.0, learning_rate=0.5)
    first = agent.init(SHAPE)
    np.testing.assert_array_equal(first[:, 0, 0], [3, 2, 1])
    second = np.asarray(agent.update(SHAPE, first, EPISODE))
    expected = np.array(first)
    # Half way to reward plus next value, by the values from before the episode; nothing follows the last step.
    expected[0, 0, 0] = (3 + (1 + 2)) / 2
    expected[1, 1, 1] = (2 + (-2 + 1)) / 2
    expected[2, 0, 0] = (1 + 4) / 2
    np.testing.assert_array_equal(second, expected)
    third = np.asarray(agent.update(SHAPE, jnp.asarray(second), EPISODE))
    # State 1 at step 1 is worth the untried action's 2; state 0 at the last step now 2.5.
    assert third[0, 0, 0] == (3 + (1 + 2)) / 2
    assert third[1, 1, 1] == (0.5 + (-2 + 2.5)) / 2


# All of them.


def regrets(agent, env, *, episodes, seeds=(0, 1, 2, 3), **options):
    training = make_tabular_loop(env, agent, seeds=seeds, episodes=episodes, **options)
    return np.concatenate([chunk.metrics.regret for chunk in training.chunks()], axis=1)


@pytest.mark.learn
@pytest.mark.parametrize("name", ["psrl", "rlsvi"])
def test_posterior_sampling_has_sublinear_regret(name):
    env = RiverSwim()
    regret = regrets(TABULAR_AGENTS[name], env, episodes=1500)
    early, late = regret[:, :100].mean(), regret[:, -500:].mean()
    assert early > 0.2 * env.solved_return  # it has to learn
    assert late < 0.03 * env.solved_return
    # Dithering, with or without a model, does not find the reward.
    for dithering in ("epsilon-greedy", "q-learning"):
        assert regrets(TABULAR_AGENTS[dithering], env, episodes=1500)[:, -500:].mean() > 0.5 * env.solved_return


@pytest.mark.learn
@pytest.mark.parametrize("name", ["ucrl2", "ucbvi", "optimistic-q"])
def test_optimism_learns_in_the_end(name):
    env = RiverSwim(length=4)
    regret = regrets(TABULAR_AGENTS[name], env, episodes=6000, seeds=(0, 1))
    assert regret[:, :100].mean() > 0.2 * env.solved_return
    assert regret[:, -500:].mean() < 0.12 * env.solved_return


@pytest.mark.learn
@pytest.mark.parametrize("name", ["epsilon-greedy", "q-learning"])
def test_dithering_learns_what_is_near(name):
    agent = dataclasses.replace(TABULAR_AGENTS[name], epsilon=0.3)
    env = StochasticChain(length=2, horizon=6, reward_std=0.0)
    training = make_tabular_loop(env, agent, seeds=(0, 1), episodes=3000)
    metrics = [chunk.metrics for chunk in training.chunks()]
    greedy = np.concatenate([m.greedy_optimal for m in metrics], axis=1)
    assert not np.concatenate([m.optimal for m in metrics], axis=1).any()  # it never ceases to dither
    assert greedy[:, -100:].mean() > 0.9


@pytest.mark.integration
@pytest.mark.parametrize("name", TABULAR_AGENTS)
def test_a_seed_is_the_same_alone_and_in_any_chunks(name, monkeypatch):
    env, agent = StochasticChain(), TABULAR_AGENTS[name]
    together = regrets(agent, env, episodes=60, seeds=(3, 4))
    monkeypatch.setattr("bootdqn.loops.tabular._OPERATIONS_PER_CHUNK", 7 * 15 * 72)  # seven episodes
    alone = regrets(agent, env, episodes=60, seeds=(4,))
    np.testing.assert_array_equal(together[1], alone[0])


@pytest.mark.integration
def test_seeds_differ_and_may_be_vmapped():
    env = StochasticChain()
    apart = regrets(PSRL(), env, episodes=20, seeds=(0, 1, 2))
    assert len(np.unique(apart.sum(axis=1))) == 3
    vmapped = regrets(PSRL(), env, episodes=20, seeds=(0, 1, 2), group_size=3)
    np.testing.assert_allclose(vmapped, apart, atol=1e-4)


def test_rewards_do_not_drift():
    """A small reward seen ten million times keeps its mean, which a running sum in single precision would not."""
    visits = 10_000_000.0
    agent, shape = PSRL(), Shape(1, 1, 20)
    counts = Counts(jnp.full((1, 1, 1), visits), jnp.full((1, 1), 0.001))
    zeros = jnp.zeros(20, jnp.int32)
    episode = Trajectory(zeros, zeros, jnp.full(20, 0.001), zeros)
    for _ in range(50):
        counts = agent.update(shape, counts, episode)
    assert float(counts.reward_mean[0, 0]) == pytest.approx(0.001, rel=1e-6)
    assert float(counts.visits[0, 0]) == visits + 1000


def test_the_return_is_that_of_the_policy():
    """Over all seeds and episodes, realised and exact regret agree: the same policy is evaluated and played."""
    env, agent = StochasticChain(reward_std=0.0), UCRL2()
    training = make_tabular_loop(env, agent, seeds=range(20), episodes=500)
    metrics = [chunk.metrics for chunk in training.chunks()]
    realised = env.solved_return - np.concatenate([m.episode_return for m in metrics], axis=1)
    exact = np.concatenate([m.regret for m in metrics], axis=1)
    error = float(np.std(realised - exact)) / math.sqrt(exact.size)
    assert float(np.mean(realised - exact)) == pytest.approx(0, abs=4 * error)
    assert error < 0.05 * exact.mean()


def test_more_steps_than_can_be_counted_are_refused():
    with pytest.raises(UserError, match="to which counts are exact"):
        make_tabular_loop(StochasticChain(), PSRL(), seeds=(0,), episodes=2 * 10**6)


def test_tables_have_an_end():
    require_small(Shape(900, 2, 30))
    for shape in (Shape(10_000, 2, 10), Shape(1000, 2, 1000)):
        with pytest.raises(UserError, match="too many for a tabular baseline"):
            require_small(shape)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "option"), [("psrl", {"prior_transitions": 1e-40}), ("q-learning", {"initial_reward": 1e38})]
)
def test_what_single_precision_cannot_hold_is_reported(name, option):
    with pytest.raises(UserError, match="too large or too small for single precision"):
        bootdqn.train("stochastic-chain", name, episodes=50, **option)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (PSRL, {"prior_precision": 0.0}, "prior_precision must be positive and finite, got 0.0"),
        (PSRL, {"prior_reward": math.nan}, "prior_reward must be finite, got nan"),
        (UCRL2, {"delta": 1.5}, r"delta must be in \(0, 1\), got 1.5"),
        (UCRL2, {"max_reward": math.inf}, "max_reward must be finite, got inf"),
        (UCBVI, {"scale": -1.0}, "scale must be finite and not negative, got -1.0"),
        (RLSVI, {"perturbation": -1.0}, "perturbation must be finite and not negative, got -1.0"),
        (QLearning, {"learning_rate": 0.0}, r"learning_rate must be in \(0, 1\], got 0.0"),
        (EpsilonGreedy, {"epsilon": 1.5}, r"epsilon must be in \[0, 1\], got 1.5"),
        (QLearning, {"epsilon": -0.5}, r"epsilon must be in \[0, 1\], got -0.5"),
        (QLearning, {"initial_reward": math.nan}, "initial_reward must be finite, got nan"),
    ],
)
def test_parameters_out_of_range(make, options, message):
    with pytest.raises(UserError, match=message):
        make(**options)


def aliased_values(estimate, width, rewards, horizon):
    """The slip, by loops: every step works on the estimate that the one after it has left."""
    estimate, values, found = np.array(estimate, float), np.zeros(len(rewards)), []
    for _ in range(horizon):
        q, order = np.zeros(rewards.shape), np.argsort(values)
        best = order[-1]
        for state, action in np.ndindex(*rewards.shape):
            p = estimate[state, action]  # no copy
            if p[best] + width[state, action] / 2 > 1:
                p = np.eye(len(values))[best]
            else:
                p[best] += width[state, action] / 2
                for worst in order[:-1]:
                    p[worst] -= min(max(p.sum() - 1, 0), p[worst])
            q[state, action] = rewards[state, action] + p @ values
        values = q.max(axis=-1)
        found.insert(0, q)
    return np.array(found)


def test_the_slip_of_others_is_another_agent():
    """Optimism that adds up from step to step exceeds the right one, and prefers left at the start."""
    env = StochasticChain()
    counts = Counts(
        1000 * jnp.asarray(env.mdp.transitions, jnp.float32), jnp.asarray(env.mdp.rewards, jnp.float32)
    )
    right, aliased = (
        np.asarray(agent.plan(KEY, env.mdp.shape, counts, jnp.int32(1000))) for agent in (UCRL2(), AliasedUCRL2())
    )
    posterior = UCRL2().posterior(counts)
    reward_width, width = map(np.asarray, UCRL2().widths(env.mdp.shape, counts, jnp.int32(1000)))
    rewards = np.minimum(posterior.reward_mean + reward_width, 1.0)
    expected = aliased_values(posterior.mean_transitions, width, rewards, 15)
    np.testing.assert_allclose(aliased, expected, rtol=1e-4)
    assert aliased[0, 0].max() > 1.3 * right[0, 0].max()
    assert right[0, 0].argmax() == 1
    assert aliased[0, 0].argmax() == 0  # after a thousand data each
