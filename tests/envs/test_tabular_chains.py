"""Environments given by tables: exact values, the same dynamics everywhere, and regret."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from bootdqn.envs.registry import env_spec, make_env
from bootdqn.envs.tabular_chains import RiverSwim, StochasticChain
from bootdqn.errors import UserError
from bootdqn.experiments.stochastic_chain import VERSIONS
from bootdqn.tabular.mdp import greedy_policy

SPECS = [
    "chain:5",
    "chain:6,scrambled,reward_on=entry",
    "deep_sea:4",
    "deep_sea:4,stochastic",
    "stochastic_chain",
    "stochastic_chain:4,noiseless,scrambled",
    "river_swim",
]


def always(action, mdp):
    return jnp.broadcast_to(jax.nn.one_hot(action, 2), (mdp.shape.horizon, mdp.shape.num_states, 2))


@pytest.mark.parametrize(("left_reward", "best"), [(0.001, 0.82471), (0.005, 0.83352), (0.01, 0.84452)])
def test_optimal_values_to_five_digits(left_reward, best):
    env = StochasticChain(left_reward=left_reward)
    assert round(env.solved_return, 5) == best
    # Right all the way never sees the left reward; left all the way sees nothing else.
    assert env.solved_return - float(env.mdp.regret(always(1, env.mdp))) == pytest.approx(0.82251, abs=5e-6)
    assert env.solved_return - float(env.mdp.regret(always(0, env.mdp))) == pytest.approx(
        15 * left_reward, abs=1e-6
    )
    uniform = jnp.full((15, 6, 2), 0.5)
    value = env.solved_return - float(env.mdp.regret(uniform))
    assert value == pytest.approx({0.001: 0.015, 0.005: 0.036, 0.01: 0.063}[left_reward], abs=6e-4)


def test_tables_of_the_stochastic_chain():
    mdp = StochasticChain(length=3, horizon=4).mdp
    left, right = mdp.transitions[:, 0], mdp.transitions[:, 1]
    np.testing.assert_array_equal(left, [[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(right, [[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    np.testing.assert_array_equal(mdp.rewards, [[0.01, 0], [0, 0], [0, 1]])
    np.testing.assert_array_equal(mdp.reward_std, [[1, 0], [0, 0], [0, 1]])
    assert StochasticChain(reward_std=0.0).mdp.reward_std.max() == 0


def test_tables_of_river_swim():
    mdp = RiverSwim(length=4).mdp
    np.testing.assert_array_equal(mdp.transitions[:, 0], np.eye(4)[[0, 0, 1, 2]])
    expected = [[0.4, 0.6, 0, 0], [0.05, 0.6, 0.35, 0], [0, 0.05, 0.6, 0.35], [0, 0, 0.4, 0.6]]
    np.testing.assert_array_equal(mdp.transitions[:, 1], expected)
    np.testing.assert_array_equal(mdp.rewards, [[0.005, 0], [0, 0], [0, 0], [0, 1]])
    assert mdp.shape.horizon == 20


def test_the_scrambled_chain_of_the_experiment_has_no_simple_rule():
    env = make_env(VERSIONS["scrambled"])
    assert isinstance(env, StochasticChain)
    assert env.right_actions.tolist() == [0, 1, 1, 0, 1, 0]  # no threshold: it changes four times
    assert StochasticChain().right_actions.tolist() == [1] * 6


def test_scrambling_renames_actions_and_nothing_else():
    plain, scrambled = StochasticChain().mdp, StochasticChain(scrambled=True, scramble_seed=1).mdp
    swapped = np.array([(scrambled.transitions[s] != plain.transitions[s]).any() for s in range(6)])
    assert swapped.any()
    assert not swapped.all()
    for name in ("transitions", "rewards", "reward_std"):
        table, other = getattr(plain, name), getattr(scrambled, name)
        np.testing.assert_array_equal(
            other, np.where(swapped.reshape(6, *[1] * (table.ndim - 1)), table[:, ::-1], table)
        )
    assert scrambled.optimal_value == plain.optimal_value


@pytest.mark.parametrize("spec", SPECS)
def test_the_optimum_is_the_same_by_tables_and_by_formula(spec):
    env = make_env(spec)
    assert env.mdp.optimal_value == pytest.approx(env.solved_return, abs=1e-6)
    assert env.mdp.shape == (env.encoding.size, env.num_actions, env.horizon)


def run_env(env, policy, keys):
    """Episodes of a policy: states and actions before every step, states after it, rewards, and the regret."""

    def episode(key):
        def step(carry, key):
            state, obs, time = carry
            act_key, env_key = jax.random.split(key)
            action = jax.random.categorical(act_key, jnp.log(policy[time, obs]))
            state, out = env.step(env_key, state, action)
            return (state, out.obs, time + 1), (obs, action, out.obs, out.reward)

        (state, _, _), steps = jax.lax.scan(step, (*env.reset(key), 0), jax.random.split(key, env.horizon))
        total = steps[3].sum()
        return (*steps, env.regret(state, total), env.is_optimal(state, total))

    return map(np.asarray, jax.jit(jax.vmap(episode))(keys))


@pytest.mark.parametrize("spec", SPECS)
def test_tables_and_steps_are_the_same_problem(spec):
    env, rng = make_env(spec), np.random.default_rng(0)
    mdp = env.mdp
    policy = jnp.asarray(rng.dirichlet([1, 1], (mdp.shape.horizon, mdp.shape.num_states)), jnp.float32)
    states, actions, moved, rewards, regret, optimal = run_env(
        env, policy, jax.random.split(jax.random.key(1), 20_000)
    )
    # Regret is, path by path, the sum of what the actions lost; and its mean that of the policy.
    gaps = mdp.gaps[np.arange(mdp.shape.horizon), states, actions].sum(axis=1)
    np.testing.assert_allclose(regret, gaps, atol=2e-5)
    if "deep_sea" not in spec:  # which has bsuite's notion of a good episode
        np.testing.assert_array_equal(optimal, gaps < 1e-6)
    error = 4 * regret.std() / np.sqrt(len(regret)) + 1e-4
    assert regret.mean() == pytest.approx(float(mdp.regret(policy)), abs=error)
    assert env.solved_return - rewards.sum(axis=1).mean() == pytest.approx(
        regret.mean(), abs=error + 4 * rewards.sum(axis=1).std() / np.sqrt(len(regret))
    )
    # Every pair that was seen often leads where the table says, for what it says; the last step leads nowhere.
    for state, action in np.ndindex(*mdp.rewards.shape):
        at = (states == state) & (actions == action)
        if at.sum() > 500:
            slack = 4 / np.sqrt(at.sum())
            assert rewards[at].mean() == pytest.approx(mdp.rewards[state, action], abs=slack)
            assert rewards[at].std() == pytest.approx(mdp.reward_std[state, action], abs=slack + 1e-3)
        inside = at[:, :-1]
        if inside.sum() > 500:
            shares = np.bincount(moved[:, :-1][inside], minlength=mdp.shape.num_states) / inside.sum()
            np.testing.assert_allclose(shares, mdp.transitions[state, action], atol=2.5 / np.sqrt(inside.sum()))
            assert not shares[mdp.transitions[state, action] == 0].any()


@pytest.mark.parametrize("spec", SPECS)
def test_the_optimal_policy_has_no_regret(spec):
    env = make_env(spec)
    policy = greedy_policy(jnp.asarray(env.mdp.optimal_q))
    assert float(env.mdp.regret(policy)) == 0
    *_, rewards, regret, optimal = run_env(env, policy, jax.random.split(jax.random.key(2), 20_000))
    assert regret.max() < 1e-6
    assert optimal.all()
    total = rewards.sum(axis=1)
    assert total.mean() == pytest.approx(env.solved_return, abs=4 * total.std() / np.sqrt(len(total)) + 1e-5)


@pytest.mark.parametrize(("name", "make"), [("StochasticChain", StochasticChain), ("RiverSwim", RiverSwim)])
def test_gymnasium_checker_and_same_features(name, make):
    env, pure = gymnasium.make(f"bootdqn/{name}-v0", reward_std=0.5), make(reward_std=0.5)
    check_env(env.unwrapped)
    features = [np.asarray(pure.encoding(state)).tolist() for state in range(6)]
    rng, seen = np.random.default_rng(0), set()
    for episode in range(20):
        obs, _ = env.reset(seed=episode)
        assert obs.tolist() == features[0]
        state, steps, truncated = 0, 0, False
        while not truncated:
            action = int(rng.random() < 0.8)
            obs, _, terminated, truncated, _ = env.step(np.int64(action))
            moved = features.index(obs.tolist())
            assert pure.mdp.transitions[state, action, moved] > 0
            assert not terminated
            state, steps = moved, steps + 1
            seen.add(state)
        assert steps == pure.horizon
    assert seen >= {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("spec", "canonical", "env"),
    [
        ("stochastic-chain", "stochastic_chain", StochasticChain()),
        ("stochastic_chain,tabularl", "stochastic_chain", StochasticChain(left_reward=0.01, reward_std=1.0)),
        (
            "stochastic-chain,noiseless",
            "stochastic_chain,left_reward=0.001,reward_std=0.0",
            StochasticChain(left_reward=0.001, reward_std=0.0),
        ),
        (
            "stochastic-chain:8,left_reward=0.005,noiseless",
            "stochastic_chain:8,left_reward=0.005,reward_std=0.0",
            StochasticChain(length=8, left_reward=0.005, reward_std=0.0),
        ),
        ("river-swim:10", "river_swim:10", RiverSwim(length=10)),
    ],
)
def test_specs(spec, canonical, env):
    assert make_env(spec) == env
    assert env_spec(env) == canonical
    assert make_env(canonical) == env


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("stochastic_chain:", "needs a size, as in stochastic_chain"),
        ("stochastic_chain,noisless", "did you mean noiseless?"),
        ("stochastic_chain,noiseless,tabularl", "may name one preset, without a value"),
        ("stochastic_chain,noiseless=true", "may name one preset, without a value"),
        ("stochastic_chain:1", "length must be 2 to 2**10, got 1"),
        ("stochastic_chain:16", "horizon 15 is too short to be paid at s_16"),
        ("stochastic_chain:20", "horizon 15 is too short to be paid at s_20"),
        ("stochastic_chain,reward_std=-1", "reward_std must be 0 to 1e+06, got -1.0"),
        ("river_swim,left_reward=nan", "left_reward must be 0 to 1e+06, got nan"),
        ("river_swim,horizon=9999", "horizon must be at most 2**10, got 9999"),
        ("river_swim,scramble_seed=-1", "scramble_seed must not be negative, got -1"),
    ],
)
def test_bad_specs_say_what_is_wrong(spec, message):
    with pytest.raises(UserError) as error:
        make_env(spec)
    assert message in str(error.value)
