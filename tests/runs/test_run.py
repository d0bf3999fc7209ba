"""Runs on Gymnasium environments: what they keep, and what stops them."""

import csv
import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from bootdqn import BootstrappedDQN, UserError
from bootdqn.cli.main import main
from bootdqn.loops.host import HostLoop
from bootdqn.runs.checkpoint import Checkpoints
from helpers import trees_equal
from small_runs import ring, tiny


@pytest.mark.integration
def test_the_best_and_the_last_model_are_kept(tmp_path):
    model = tiny("CartPole-v1")
    model.learn(400, out=tmp_path / "run", evaluate_every_steps=100, evaluation_episodes=1)
    rows = list(csv.DictReader((tmp_path / "run" / "evaluations.csv").read_text().splitlines()))
    votes = [float(row["mean_return"]) for row in rows if row["policy"] == "vote"]
    assert len(votes) == 4
    assert json.loads((tmp_path / "run" / "run.json").read_text())["best_return"] == max(votes)
    last = BootstrappedDQN.load(tmp_path / "run" / "models" / "last.safetensors")
    assert trees_equal(last.params, model.params)
    assert model.run is not None
    best = BootstrappedDQN.load(tmp_path / "run" / "models" / "best.safetensors")
    assert model.run.evaluations is not None
    assert trees_equal(best.params, model.run.evaluations.best_params)
    shares = [float(row["data_share"]) for row in rows[-3:]]
    assert sum(shares) == pytest.approx(1, abs=1e-5)


class Poisoned(gymnasium.Env):
    """A reward, or an observation, that is not a number after some steps."""

    observation_space, action_space = spaces.Box(-9, 9, (2,)), spaces.Discrete(2)

    def __init__(self, what):
        self.what = what

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        bad = self.steps == 17
        obs = np.array([1.0, np.inf if bad and self.what == "observation" else 0.0], np.float32)
        return obs, float("nan") if bad and self.what == "reward" else 0.0, False, False, {}


@pytest.mark.parametrize("what", ["reward", pytest.param("observation", marks=pytest.mark.integration)])
def test_what_is_not_a_number_stops_the_run_and_is_never_stored(what, tmp_path):
    model = tiny(lambda: Poisoned(what), agent="boot", num_envs=2)
    with pytest.raises(UserError, match=rf"slot 0 returned an? {what} that is not finite after step 32"):
        model.learn(500, out=tmp_path / "run")
    assert model.run is not None
    assert isinstance(model.run.loop, HostLoop)
    assert np.isfinite(ring(model.run.loop).data.reward).all()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "failed"
    assert "not finite" in record["error"]


def test_what_is_not_a_number_in_random_play_is_said_before_anything_is_learned(tmp_path):
    model = tiny(lambda: Poisoned("observation"))
    with pytest.raises(UserError, match=r"an observation of random play is not finite: \[ 1. inf\]"):
        model.learn(500, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.integration
def test_parameters_that_are_not_numbers_stop_the_run():
    with pytest.raises(UserError, match="training diverged: the loss is no longer finite at step"):
        tiny("CartPole-v1", learning_rate=1e30).learn(500)


def test_too_little_memory_is_said_before_anything_is_allocated(tmp_path, monkeypatch):
    monkeypatch.setattr("bootdqn.replay.host_memory.available_memory", lambda: 10**6)
    with pytest.raises(UserError, match=r"the run needs .* GB and 0.0 GB of memory is free"):
        tiny("CartPole-v1", replay_capacity=10**6).learn(10**6, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.integration
def test_divergence_is_noticed_without_the_end_of_an_episode(tmp_path):
    class Endless(Poisoned):
        def step(self, action):
            return np.ones(2, np.float32), 1.0, False, False, {}

    model = tiny(lambda: Endless(""), learning_rate=1e30)
    with pytest.raises(UserError, match="training diverged"):
        model.learn(60, out=tmp_path / "run", checkpoint_every_steps=40)
    found = Checkpoints(tmp_path / "run").load(print)
    assert found is not None
    assert found.step == 0  # the last that was good
    assert all(np.isfinite(array).all() for array in found.arrays.values())


@pytest.mark.integration
def test_a_run_directory_named_like_an_environment(tmp_path):
    out = tmp_path / "chain-v2"
    assert main(["train", "chain:5", "--episodes", "2", "--heads", "2", "--hidden", "4", "--out", str(out)]) == 0
    assert json.loads((out / "config.json").read_text())["episodes"] == 2


@pytest.mark.integration
def test_a_run_does_not_depend_on_whether_it_is_recorded(tmp_path):
    options: dict[str, Any] = {"checkpoint_every_steps": 100, "evaluate_every_steps": 0}
    recorded = tiny("CartPole-v1").learn(250, out=tmp_path / "run", **options)
    assert trees_equal(recorded.params, tiny("CartPole-v1").learn(250, **options).params)
    evaluated = tiny("CartPole-v1").learn(250, **{**options, "evaluate_every_steps": 50, "evaluation_episodes": 1})
    assert trees_equal(recorded.params, evaluated.params)
