"""The friendly face: every space is learned and predicted, models come back from files, mistakes are said."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from gymnasium import spaces

import bootdqn
from bootdqn import BootstrappedDQN, UserError
from bootdqn.api import ABSTAIN
from bootdqn.core.config import GYM_AGENTS
from bootdqn.runs.config import default_agent
from helpers import trees_equal
from small_runs import tiny


class Echo(gymnasium.Env):
    """Observes samples of any space; ends after five steps."""

    def __init__(self, space, actions=None):
        self.observation_space = space
        self.action_space = actions or spaces.Discrete(3, start=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {}


SPACES = [
    spaces.Box(-1, 1, (3,)),
    spaces.Box(-1, 1, (2, 3), np.float64),
    spaces.Box(0, 255, (4, 4, 1), np.uint8),
    spaces.Discrete(6, start=-2),
    spaces.MultiBinary(4),
    spaces.MultiDiscrete([2, 3]),
    spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))]),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.MultiBinary((2, 2))})}),
]


@pytest.mark.parametrize(
    "space",
    [*(pytest.param(space, marks=pytest.mark.integration) for space in SPACES[:-1]), SPACES[-1]],
    ids=lambda space: type(space).__name__,
)
def test_every_supported_space_is_learned_predicted_saved_and_loaded(space, tmp_path):
    model = tiny(lambda: Echo(space)).learn(60)
    obs = [space.sample() for _ in range(4)]
    actions, beliefs = zip(*(model.predict(o) for o in obs), strict=True)
    assert set(actions) <= {2, 3, 4}
    assert beliefs[0].q.shape == (3, 3)
    model.save(tmp_path / "m.safetensors")
    loaded = BootstrappedDQN.load(tmp_path / "m.safetensors")
    for o, action, belief in zip(obs, actions, beliefs, strict=True):
        again, other = loaded.predict(o)
        assert again == action
        assert trees_equal(belief, other)
    batch = gymnasium.vector.utils.concatenate(space, obs, gymnasium.vector.utils.create_empty_array(space, n=4))
    many, belief = model.predict(batch)
    assert many.tolist() == list(actions)
    for row in range(4):
        np.testing.assert_allclose(belief.q[row], beliefs[row].q, atol=1e-5)
        np.testing.assert_allclose(belief.votes[row], beliefs[row].votes, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["Acrobot-v1", "FrozenLake-v1", "Blackjack-v1"])  # Box, Discrete, Tuple
def test_gymnasiums_own_environments(name):
    model = tiny(name, num_envs=2).learn(60, evaluate_every_steps=0)
    env = gymnasium.make(name)
    obs, _ = env.reset(seed=0)
    for _ in range(5):
        action, belief = model.predict(obs)
        assert env.action_space.contains(action)
        assert np.isfinite(belief.q).all()
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: Echo(spaces.Text(5)), "observations of Text are not supported; supported are Box, Discrete"),
        (
            lambda: Echo(SPACES[0], spaces.Box(-1, 1, (1,))),
            "actions of Box are not supported; supported is Discrete",
        ),
        ("CartPole-v7", "Gymnasium cannot make 'CartPole-v7'"),
        (lambda: "no environment", "the maker should return a gymnasium.Env, got str"),
    ],
)
def test_what_cannot_be_learned_is_said(env, message):
    with pytest.raises(UserError, match=message):
        BootstrappedDQN(env)


def test_mistakes_in_python():
    with pytest.raises(UserError, match="unknown agent 'bot'; did you mean boot"):
        BootstrappedDQN("CartPole-v1", agent="bot")
    with pytest.raises(UserError, match="unknown option of boot-prior 'heads'"):
        BootstrappedDQN("CartPole-v1", heads=3)
    with pytest.raises(UserError, match="one environment fills one slot"):
        BootstrappedDQN(gymnasium.make("CartPole-v1"), num_envs=2)
    model = tiny("CartPole-v1")
    with pytest.raises(UserError, match=r"expected an observation of shape \(4,\)"):
        model.predict([1.0, 2.0])
    with pytest.raises(UserError, match="head must be 0 to 2, got 3"):
        model.predict(np.zeros(4), "head", head=3)
    with pytest.raises(UserError, match="unknown policy 'majority'"):
        model.predict(np.zeros(4), "majority")  # type: ignore
    with pytest.raises(UserError, match="steps must be at least 1, got 0"):
        model.learn(0)


def test_policies_by_hand():
    model = tiny("CartPole-v1", agent="boot")
    last = model.params.layers[-1]
    # Whatever is seen: heads 0 and 1 prefer action 0 by little, head 2 action 1 by much.
    bias = np.array([[1.0, 0.9], [1.0, 0.9], [0.0, 5.0]], np.float32)
    layers = (*model.params.layers[:-1], dataclasses.replace(last, weight=np.zeros_like(last.weight), bias=bias))
    model.params = dataclasses.replace(model.params, layers=layers)
    obs = np.zeros(4)
    assert model.predict(obs)[0] == 0
    assert model.predict(obs, "mean")[0] == 1
    assert [model.predict(obs, "head", head=k)[0] for k in range(3)] == [0, 0, 1]
    belief = model.predict(obs)[1]
    np.testing.assert_array_equal(belief.q, bias)
    np.testing.assert_array_equal(belief.votes, [2, 1])
    np.testing.assert_allclose(belief.mean, [2 / 3, 6.8 / 3], rtol=1e-6)
    assert model.predict(obs, abstain_below=0.6)[0] == 0
    assert model.predict(obs, abstain_below=0.7)[0] == ABSTAIN == -1
    assert model.predict(np.zeros((2, 4)), abstain_below=0.7)[0].tolist() == [-1, -1]


@pytest.mark.integration
def test_an_environment_that_is_given_is_the_one_that_is_played():
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    model = tiny(env).learn(100)
    assert len(env.return_queue) > 0
    assert len(model.evaluate(4)) == 4  # in others like it


@pytest.mark.integration
def test_callbacks_see_every_episode_and_evaluation():
    episodes, evaluations = [], []
    model = tiny("CartPole-v1", num_envs=2)
    callbacks: dict[str, Any] = {"on_episode": episodes.append, "on_evaluation": evaluations.append}
    model.learn(300, evaluate_every_steps=100, evaluation_episodes=2, **callbacks)
    assert [e.episode for e in episodes] == list(range(1, len(episodes) + 1))
    assert all(e.episode_return == e.length for e in episodes)  # CartPole pays one a step
    assert sum(e.length for e in episodes) <= 300
    assert len(evaluations) == 3
    assert [e.policy for e in evaluations[0]] == [-1, -2, 0, 1, 2]
    assert all(len(e.returns) == 2 for e in evaluations[0])


@pytest.mark.integration
def test_models_of_compiled_runs_predict_too(tmp_path):
    result = bootdqn.train("chain:6", episodes=3, num_heads=2, hidden=(8,), out=tmp_path / "run")
    model = BootstrappedDQN.load(tmp_path / "run" / "models" / "seed0.safetensors")
    np.testing.assert_array_equal(model.predict(3)[1].q, result.belief(3).q)
    assert len(model.evaluate(2)) == 2


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory) -> Path:
    """The file of a model for CartPole."""
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    tiny("CartPole-v1").save(path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["config"]["agent"].update(num_heads=10**9), "heads must be 1 to"),
        (lambda h: h["config"]["agent"].update(num_heads=7), "should be float32 of shape"),
        (lambda h: h["config"]["agent"].update(virus=1), "is not of this version"),
        (lambda h: h["config"].pop("agent"), "is not of this version"),
        (lambda h: h.pop("encoding"), "does not say what its model observes"),
        (lambda h: h["encoding"].update(size=5), "should be float32 of shape"),
        (lambda h: h.update(num_actions="many"), "does not say what its model observes"),
        (lambda h: h.update(num_actions=10**12), "a model with"),
        (lambda h: h.update(observations=[1]), "does not say what its model observes"),
        (lambda h: h.update(format="bootdqn-model-9"), "was it written by another version"),
    ],
)
def test_hostile_model_files_are_refused(change, message, saved_model, tmp_path):
    path = tmp_path / "m.safetensors"
    with safetensors.safe_open(saved_model, framework="numpy") as file:
        header = json.loads(file.metadata()["bootdqn"])
    change(header)
    arrays = safetensors.numpy.load_file(saved_model)
    path.write_bytes(safetensors.numpy.save(arrays, metadata={"bootdqn": json.dumps(header)}))
    with pytest.raises(UserError, match=message):
        BootstrappedDQN.load(path)


def test_a_model_for_another_environment_is_refused(saved_model):
    with pytest.raises(UserError, match=r"holds a model for CartPole-v1.* not those of Acrobot-v1"):
        BootstrappedDQN.load(saved_model, "Acrobot-v1")


def test_where_no_agent_is_named_heads_explore_and_others_vote():
    model = BootstrappedDQN("CartPole-v1", num_heads=4, prior_scale=0.0)
    assert model.config.agent_name == "boot-prior"
    assert model.config.agent == dataclasses.replace(GYM_AGENTS["boot-prior"], num_heads=4, prior_scale=0.0)
    _, belief = model.predict(np.zeros(4))
    assert belief.votes.sum() == 2
    assert belief.q.shape == (4, 2)
    last = model.params.layers[-1]
    # Whatever is seen: three heads prefer action 0, but of the last two, which vote, one alone, and by less.
    bias = np.array([[3.0, 0.0], [3.0, 0.0], [0.0, 9.0], [0.0, 1.0]], np.float32)
    layers = (*model.params.layers[:-1], dataclasses.replace(last, weight=0 * last.weight, bias=bias))
    model.params = dataclasses.replace(model.params, layers=layers)
    action, belief = model.predict(np.zeros(4), abstain_below=0.9)
    assert (action, belief.votes.tolist()) == (1, [0, 2])
    assert [default_agent(env) for env in (None, "Taxi-v3", "my:env", "chain:5", "atari:pong")] == [
        *["boot-prior"] * 3,
        *["boot"] * 2,
    ]


@pytest.mark.integration
def test_an_environment_with_options_of_its_own_has_no_name(tmp_path):
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    model = tiny(env).learn(60, out=tmp_path / "run")
    assert model.config.env is None
    assert tiny(gymnasium.make("FrozenLake-v1")).config.env == "FrozenLake-v1"
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**record, "status": "failed", "error": "x"}))
    with pytest.raises(UserError, match="has no name"):
        BootstrappedDQN.resume(tmp_path / "run")
    resumed = BootstrappedDQN.resume(tmp_path / "run", gymnasium.make("FrozenLake-v1", is_slippery=False))
    assert trees_equal(resumed.params, model.params)
    assert "error" not in json.loads((tmp_path / "run" / "run.json").read_text())


def test_ties_are_broken_alike_in_a_batch_and_alone():
    model = tiny("CartPole-v1", agent="boot", num_heads=2)
    obs = np.random.default_rng(0).normal(0, 1, (60, 4)).astype(np.float32)
    many, belief = model.predict(obs)
    assert (belief.votes == 1).all(axis=1).sum() > 3  # there are some
    assert many.tolist() == [model.predict(row)[0] for row in obs]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 64}, "hidden must be whole numbers, such as (64,) or (50, 50), got 64"),
        ({"hidden": (1.5,)}, "hidden must be whole numbers"),
        ({"num_heads": 2.5}, "num_heads must be a whole number, got 2.5"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, got 'fast'"),
    ],
)
def test_options_of_another_type(options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        BootstrappedDQN("CartPole-v1", **options)
    with pytest.raises(UserError, match=re.escape(message)):
        bootdqn.train("chain:5", **options)


def test_what_the_functions_for_other_environments_say():
    with pytest.raises(UserError, match=r"CartPole-v1 is not one of ours: BootstrappedDQN\('CartPole-v1'\)"):
        bootdqn.train("CartPole-v1")
    with pytest.raises(UserError, match=r"episodes must be a whole number, got 1\.5"):
        bootdqn.train("chain:5", episodes=1.5)  # type: ignore
    with pytest.raises(UserError, match="unknown option of boot 'epsiodes'; did you mean episodes"):
        bootdqn.train("chain:5", epsiodes=2)


def test_beliefs_are_numpy_arrays():
    action, belief = tiny("CartPole-v1").predict([0.0, 0.1, 0.0, -0.1])
    assert isinstance(action, int)
    assert isinstance(belief.q, np.ndarray)
    assert not isinstance(belief.mean, jnp.ndarray)
