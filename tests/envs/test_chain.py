import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bootdqn
from bootdqn.envs.chain import Chain, ChainState
from bootdqn.envs.registry import env_spec, make_env
from bootdqn.errors import UserError

KEY = jax.random.key(0)
# All transitions of the chain of 5: (position, action) -> (next position, reward for the action, on entry).
TABLE = {
    (0, 0): (0, 0.001, 0.001),
    (0, 1): (1, 0.0, 0.0),
    (1, 0): (0, 0.0, 0.001),
    (1, 1): (2, 0.0, 0.0),
    (2, 0): (1, 0.0, 0.0),
    (2, 1): (3, 0.0, 0.0),
    (3, 0): (2, 0.0, 0.0),
    (3, 1): (4, 0.0, 1.0),
    (4, 0): (3, 0.0, 0.0),
    (4, 1): (4, 1.0, 1.0),
}


@pytest.mark.parametrize("reward_on", ["action", "entry"])
def test_all_transitions(reward_on):
    env = Chain(length=5, reward_on=reward_on)
    for (position, action), (moved, for_action, on_entry) in TABLE.items():
        state = ChainState(jnp.int32(position), jnp.int32(0))
        state, step = env.step(KEY, state, jnp.int32(action))
        assert (int(state.position), int(step.obs), int(state.time)) == (moved, moved, 1)
        assert float(step.reward) == pytest.approx(for_action if reward_on == "action" else on_entry)
        assert not step.terminated
        assert not step.truncated


def play(env, policy):
    """Return and steps of an episode."""
    state, obs = env.reset(KEY)
    assert int(obs) == 1
    total, count = 0.0, 0
    while True:
        state, step = env.step(KEY, state, jnp.int32(policy(int(state.position))))
        total, count = total + float(step.reward), count + 1
        if step.terminated or step.truncated:
            return total, count, step


@pytest.mark.parametrize(
    ("length", "options", "best"),
    [(4, {}, 10), (13, {}, 10), (10, {"reward_on": "entry"}, 11), (10, {"horizon_offset": 9}, 11),
     (10, {"reward_on": "entry", "horizon_offset": 7}, 10)],
)  # fmt: skip
def test_optimum_and_horizon(length, options, best):
    env = Chain(length=length, **options)
    total, count, step = play(env, lambda _: 1)
    assert (total, count) == (best, length + options.get("horizon_offset", 8))
    assert env.solved_return == best
    assert step.truncated
    assert not step.terminated
    left, _, _ = play(env, lambda _: 0)
    assert left == pytest.approx(0.001 * (env.horizon - (options.get("reward_on") != "entry")))


def test_on_chains_of_thousands_left_is_better():
    # 1499 actions: right is paid once, or twice on entry; left 1498 times, or on entry 1499.
    assert Chain(length=1500, horizon_offset=-1).solved_return == pytest.approx(1.498)
    assert Chain(length=1500, horizon_offset=-1, reward_on="entry").solved_return == 2
    assert Chain(length=2500, horizon_offset=-1, reward_on="entry").solved_return == pytest.approx(2.499)


def test_time_limit_may_be_terminal():
    _, _, step = play(Chain(length=6, time_limit="terminated"), lambda _: 1)
    assert step.terminated
    assert not step.truncated


def test_scrambled_actions():
    env = Chain(length=30, scrambled=True)
    assert set(env.right_actions) == {0, 1}
    assert env.right_actions != Chain(length=30, scrambled=True, scramble_seed=1).right_actions
    assert env.right_actions == Chain(length=30, scrambled=True).right_actions
    total, _, _ = play(env, lambda position: env.right_actions[position])
    assert total == 10
    assert play(env, lambda _: 1)[0] < 1


@pytest.mark.parametrize("features", ["thermometer", "one_hot"])
def test_reset_and_step_observe_with_the_same_features(features):
    env = Chain(length=6, features=features)
    expected = np.tril(np.ones((6, 6))) if features == "thermometer" else np.eye(6)
    encode = env.encoding
    _, obs = env.reset(KEY)
    np.testing.assert_array_equal(encode(obs), expected[1])
    for position in range(6):
        for action in (0, 1):
            _, step = env.step(KEY, ChainState(jnp.int32(position), jnp.int32(0)), jnp.int32(action))
            moved = min(max(position + (1 if action else -1), 0), 5)
            np.testing.assert_array_equal(encode(step.obs), expected[moved])


def test_gymnasium_checker_and_same_dynamics():
    made = gymnasium.make("bootdqn/Chain-v0", length=7)
    check_env(made.unwrapped)
    assert made.spec is not None
    assert "bootdqn/Chain-v0" in made.spec.to_json()  # can be saved and sent to other processes
    with pytest.raises(ValueError, match=r"expected an action in Discrete\(2\), got 5"):
        made.unwrapped.step(5)
    pure = Chain(length=7, features="one_hot", scrambled=True)
    env = gymnasium.make("bootdqn/Chain-v0", length=7, features="one_hot", scrambled=True)
    rng = np.random.default_rng(0)
    for episode in range(5):
        obs, _ = env.reset(seed=episode)
        state, index = pure.reset(KEY)
        np.testing.assert_array_equal(obs, pure.encoding(index))
        truncated = False
        for _ in range(pure.horizon):
            action = rng.integers(2)
            obs, reward, terminated, truncated, _ = env.step(action)
            state, step = pure.step(KEY, state, jnp.int32(action))
            np.testing.assert_array_equal(obs, pure.encoding(step.obs))
            assert reward == pytest.approx(float(step.reward))
            assert (terminated, truncated) == (bool(step.terminated), bool(step.truncated))
        assert truncated


@pytest.mark.parametrize(
    "spec", ["chain:50", "chain:4,scrambled", "chain:12,horizon_offset=9,features=one_hot,scramble_seed=3"]
)
def test_specs_round_trip(spec):
    assert env_spec(make_env(spec)) == spec


def test_spec_parses_options():
    assert make_env("chain:9,reward_on=entry,scrambled=false") == Chain(length=9, reward_on="entry")
    assert make_env("chain:9,scrambled,time_limit=terminated") == Chain(
        length=9, scrambled=True, time_limit="terminated"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("chian:10", "unknown environment 'chian'; did you mean chain?"),
        ("pong", "unknown environment 'pong'; known: chain"),
        ("chain", "needs a size, as in chain:50"),
        ("chain:3", "at least 4 states, got 3"),
        ("chain:-5", "at least 4 states, got -5"),
        ("chain:ten", "length must be a whole number, got 'ten'"),
        ("chain:10,scrambeld", "did you mean scrambled?"),
        ("chain:10,scrambled=maybe", "scrambled must be true or false, got 'maybe'"),
        ("chain:10,features=onehot", "did you mean one_hot?"),
        ("chain:10,scrambled,scrambled", "given twice"),
        ("chain:10,horizon_offset=-5", "too few to reach the end"),
        ("chain:10,scrambled,scramble_seed=-1", "scramble_seed must not be negative, got -1"),
        ("chain:99999999", "at most 2**20 states"),
        ("chain:10,length=5", "unknown option of chain 'length'"),
    ],
)
def test_bad_specs_say_what_is_wrong(spec, message):
    with pytest.raises(UserError) as error:
        make_env(spec)
    assert message in str(error.value)


def test_env_outside_the_catalog():
    class Other(Chain):
        pass

    with pytest.raises(UserError, match="not in the catalog"):
        bootdqn.train(Other(length=5))
