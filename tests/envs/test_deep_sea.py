import json
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bootdqn
from bootdqn.envs.deep_sea import DeepSea, DeepSeaState
from bootdqn.envs.registry import env_spec, make_env
from bootdqn.errors import UserError
from helpers import assert_deep_sea_repeats

KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 20_000)
# All of the sea of 3: (row, column, goes right) -> (next column, reward, whether that makes the episode bad).
COST = 0.01 / 3
TABLE = {
    (0, 0, False): (0, 0.0, True),
    (0, 0, True): (1, -COST, False),
    (1, 0, False): (0, 0.0, False),
    (1, 0, True): (1, -COST, False),
    (1, 1, False): (0, 0.0, True),
    (1, 1, True): (2, -COST, False),
    (2, 0, False): (0, 0.0, False),
    (2, 0, True): (1, -COST, False),
    (2, 1, False): (0, 0.0, False),
    (2, 1, True): (2, -COST, False),
    (2, 2, False): (1, 0.0, True),
    (2, 2, True): (2, 1 - COST, False),
}
RIGHT = [[0, 1, 1], [1, 0, 0], [0, 1, 1]]  # numpy's RandomState(42).binomial(1, 0.5, [3, 3])


def at(row, column, bad=False):
    return DeepSeaState(jnp.int32(row), jnp.int32(column), jnp.bool_(bad), jnp.float32(0))


def action_for(env, row, column, goes_right):
    right = int(env.right_actions[row, column])
    return jnp.int32(right if goes_right else 1 - right)


def play(env, goes_right):
    """Final state, return and last step of an episode that always goes the same way."""
    state, obs = env.reset(KEY)
    assert int(obs) == 0
    steps = []
    for row in range(env.size):
        assert int(state.row) == row
        state, step = env.step(KEYS[row], state, action_for(env, row, int(state.column), goes_right))
        assert bool(step.terminated) == (row == env.size - 1)
        assert not step.truncated
        steps.append(step)
    return state, sum(float(step.reward) for step in steps), steps[-1]


def test_all_transitions():
    env = DeepSea(size=3)
    np.testing.assert_array_equal(env.right_actions, RIGHT)
    for (row, column, goes_right), (moved, reward, turns_bad) in TABLE.items():
        for was_bad in (False, True):
            action = jnp.int32(RIGHT[row][column] if goes_right else 1 - RIGHT[row][column])
            state, step = env.step(KEY, at(row, column, was_bad), action)
            assert (int(state.row), int(state.column), bool(state.bad)) == (row + 1, moved, turns_bad or was_bad)
            assert step.reward == np.float32(reward)
            assert int(step.obs) == (9 if row == 2 else 3 * (row + 1) + moved)
            assert bool(step.terminated) == (row == 2)
            assert not step.truncated


@pytest.mark.parametrize("size", [2, 3, 10, 21])
def test_returns_of_always_right_and_always_left(size):
    env = DeepSea(size=size)
    state, total, step = play(env, goes_right=True)
    assert total == pytest.approx(0.99)
    assert env.solved_return == pytest.approx(0.99)
    assert env.is_optimal(state, step.reward)
    state, total, step = play(env, goes_right=False)
    assert total == 0
    assert not env.is_optimal(state, step.reward)


def test_the_last_observation_encodes_to_nothing():
    env = DeepSea(size=3)
    _, _, step = play(env, goes_right=True)
    assert int(step.obs) == 9
    np.testing.assert_array_equal(env.encoding(step.obs), np.zeros(9))
    np.testing.assert_array_equal(jax.vmap(env.encoding)(jnp.arange(9)), np.eye(9))


def test_the_mapping_is_drawn_from_its_seed():
    assert not np.array_equal(DeepSea(size=10).right_actions, DeepSea(size=10, mapping_seed=1).right_actions)
    assert DeepSea(size=40).right_actions.mean() == pytest.approx(0.5, abs=0.05)


def many_steps(env, row, column, goes_right):
    """The same step with thousands of keys."""
    action = action_for(env, row, column, goes_right)
    return jax.vmap(lambda key: env.step(key, at(row, column), action))(KEYS)


def test_the_wind_stops_some_right_moves():
    env = DeepSea(size=10, stochastic=True)
    states, steps = many_steps(env, 4, 4, goes_right=True)
    assert set(states.column.tolist()) == {4, 5}
    # 20,000 draws: a standard deviation of 0.002.
    assert (states.column == 4).mean() == pytest.approx(1 / 10, abs=0.01)
    np.testing.assert_array_equal(steps.reward, np.float32(-0.001))  # paid, whether or not it works
    assert not states.bad.any()  # a failed move is not the agent's fault
    states, steps = many_steps(env, 4, 4, goes_right=False)
    assert (states.column == 3).all()
    assert states.bad.all()


@pytest.mark.parametrize("goes_right", [False, True])
def test_noise_is_in_the_bottom_corners_only(goes_right):
    env = DeepSea(size=4, stochastic=True)
    for row, column in [(r, c) for r in range(4) for c in range(r + 1)]:
        _, steps = many_steps(env, row, column, goes_right)
        without = (float(column == 3) - 0.01 / 4) * goes_right
        if (row, column) in [(3, 0), (3, 3)]:
            noise = steps.reward - without
            assert noise.mean() == pytest.approx(0, abs=0.04)
            assert noise.std() == pytest.approx(1, abs=0.03)
        else:
            np.testing.assert_array_equal(steps.reward, np.float32(without))


def test_noise_and_wind_are_drawn_apart():
    states, steps = many_steps(DeepSea(size=4, stochastic=True), 3, 0, goes_right=True)
    assert abs(np.corrcoef(steps.reward, states.column)[0, 1]) < 0.04


def test_stochastic_optimum():
    # The reward needs size - 1 right moves that work; a move is paid for only while all before it have.
    env = DeepSea(size=3, stochastic=True)
    assert env.solved_return == pytest.approx((2 / 3) ** 2 - COST * (1 + 2 / 3 + (2 / 3) ** 2))
    right = jnp.asarray(env.right_actions)

    def episode(key):
        state, _ = env.reset(key)
        total = jnp.float32(0)
        for step_key in jax.random.split(key, 3):
            goes_right = state.row == state.column
            action = jnp.where(goes_right, right[state.row, state.column], 1 - right[state.row, state.column])
            state, step = env.step(step_key, state, action)
            total += step.reward
        return total, env.is_optimal(state, total)

    totals, optimal = jax.vmap(episode)(KEYS)
    assert totals.mean() == pytest.approx(env.solved_return, abs=0.04)
    assert optimal.all()


def test_gymnasium_checker_and_same_dynamics():
    check_env(gymnasium.make("bootdqn/DeepSea-v0", size=5).unwrapped)
    env, pure = gymnasium.make("bootdqn/DeepSea-v0", size=5), DeepSea(size=5)
    rng = np.random.default_rng(0)
    for episode in range(5):
        obs, _ = env.reset(seed=episode)
        state, index = pure.reset(KEY)
        np.testing.assert_array_equal(obs, pure.encoding(index))
        for _ in range(pure.horizon):
            action = rng.integers(2)
            obs, reward, terminated, truncated, _ = env.step(action)
            state, step = pure.step(KEY, state, jnp.int32(action))
            np.testing.assert_array_equal(obs, pure.encoding(step.obs))
            assert (reward, terminated, truncated) == (step.reward, step.terminated, step.truncated)


TRACES = json.loads((Path(__file__).parents[1] / "data" / "bsuite_deep_sea.json").read_text())["traces"]


@pytest.mark.parametrize("trace", TRACES, ids=lambda t: f"{t['size']}{'-stochastic' * t['stochastic']}")
def test_repeats_what_bsuite_did(trace):
    assert_deep_sea_repeats(trace)
    # The recording has what matters: good and bad episodes, the reward, and, where there is wind, failures.
    assert {True, False} == {episode["bad"] for episode in trace["episodes"]}
    assert max(max(episode["rewards"]) for episode in trace["episodes"]) > 0.9


@pytest.mark.parametrize("spec", ["deep_sea:20", "deep_sea:20,stochastic", "deep_sea:8,stochastic,mapping_seed=3"])
def test_specs_round_trip(spec):
    assert env_spec(make_env(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("deepsea:10", "did you mean deep_sea?"),
        ("deep_sea:1", "a deep sea needs 2 to 2**10 rows, got 1"),
        ("deep_sea:9999", "a deep sea needs 2 to 2**10 rows, got 9999"),
        ("deep_sea:10,mapping_seed=-1", "mapping_seed must be 0 to 2**32 - 1, got -1"),
    ],
)
def test_bad_specs_say_what_is_wrong(spec, message):
    with pytest.raises(UserError) as error:
        make_env(spec)
    assert message in str(error.value)


@pytest.mark.integration
@pytest.mark.parametrize("spec", ["deep_sea:4", "deep_sea:4,stochastic"])
def test_agents_train_on_it(spec):
    result = bootdqn.train(spec, episodes=10, num_heads=2, hidden=(4,), learning_start_steps=8)
    assert result.belief(16).q.shape == (2, 2)
