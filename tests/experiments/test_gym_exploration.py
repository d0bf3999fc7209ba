"""Environments with rare rewards, and what the experiment on them counts and says."""

import sys

import numpy as np
import pytest

from bootdqn.envs.vector import make_envs
from bootdqn.errors import UserError
from bootdqn.experiments import gym_exploration
from bootdqn.experiments.engine.experiment import CsvRow
from bootdqn.experiments.gym_exploration import plot, run, sweep
from bootdqn.experiments.shared.rare_rewards import (
    TASKS,
    empty_room_5x5,
    frozen_lake,
    sparse_cart_pole,
)
from trials import context


def play(env, choose):
    """Rewards of an episode, and whether it terminated and was truncated."""
    obs, _ = env.reset(seed=0)
    rewards, ended = [], (False, False)
    while not any(ended):
        obs, reward, *ended, _ = env.step(choose(len(rewards), obs))
        rewards.append(reward)
    return rewards, *ended


def test_a_pole_that_stands_long_enough_is_rewarded_once_and_one_that_falls_is_not():
    balanced = play(sparse_cart_pole(), lambda _, obs: int(obs[2] + obs[3] > 0))
    assert balanced == ([0.0] * 99 + [1.0], True, False)
    rewards, terminated, _ = play(sparse_cart_pole(), lambda *_: 0)
    assert terminated
    assert len(rewards) < 20
    assert set(rewards) == {0.0}


def test_episodes_of_a_sparse_pole_are_counted_from_their_own_start():
    env = sparse_cart_pole()
    for _ in range(2):
        assert len(play(env, lambda _, obs: int(obs[2] + obs[3] > 0))[0]) == 100


def test_moves_on_the_lake_succeed():
    right, down = 2, 1
    rewards, terminated, _ = play(frozen_lake(), lambda step, _: right if step < 7 else down)
    assert rewards == [0.0] * 13 + [1.0]
    assert terminated


@pytest.mark.parametrize("name", TASKS)
def test_every_environment_can_be_played(name):
    envs = make_envs(TASKS[name].env, 2)
    obs = envs.reset([0, 1])
    assert len(obs) == 2
    assert envs.num_actions >= 2
    answer = envs.step(np.zeros(2, np.int32))
    assert np.isfinite(answer.reward).all()
    envs.close()


def test_without_minigrid_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid.wrappers", None)
    with pytest.raises(UserError, match=r"pip install 'bootdqn\[minigrid\]'"):
        empty_room_5x5()


@pytest.mark.parametrize(("task", "expected"), [("Taxi", (3, 2, 7, -4.0)), ("FrozenLake 8x8", (3, 1, 12, -4.0))])
def test_episodes_are_rewarded_by_their_goal_or_by_their_return(task, expected, tmp_path, monkeypatch):
    trial = next(t for t in sweep("paper") if t.config.env == TASKS[task].env)
    rows = [("4", "-9", "0"), ("7", "-5", "1"), ("12", "2", "1")]

    def write_metrics(config, path, context):
        path.mkdir(parents=True)
        lines = ["step,return,terminated", *(",".join(row) for row in rows)]
        (path / "metrics.csv").write_text("\n".join(lines) + "\n")
        return True

    monkeypatch.setattr(gym_exploration, "run_or_resume", write_metrics)
    found = run(trial.config, context(out=tmp_path / "out", trial=trial.name))
    assert found is not None
    assert [*found[0].values()] == [*expected]


def test_a_trial_that_was_told_to_stop_has_no_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(gym_exploration, "run_or_resume", lambda *_: False)
    trial = sweep("smoke")[0]
    assert run(trial.config, context(out=tmp_path / "out", trial=trial.name)) is None


def _row(task, agent, seed, rewarded, first) -> CsvRow:
    return {
        "task": task, "agent": agent, "seed": str(seed), "steps": "50000", "episodes": "100",
        "rewarded": str(rewarded), "first_reward_step": first, "last_return": "0.5",
    }  # fmt: skip


def test_the_summary_by_hand(tmp_path):
    rows = [
        _row("Taxi", "boot-prior", 0, 30, "1000"),
        _row("Taxi", "boot-prior", 1, 50, "3000"),
        _row("Taxi", "dqn", 0, 8, "7000"),
        _row("Taxi", "dqn", 1, 0, ""),
        _row("Acrobot", "boot-prior", 0, 5, "100"),
        _row("Acrobot", "dqn", 0, 6, "90"),
    ]
    said = plot(rows, tmp_path / "figure")
    assert "| Taxi | boot-prior | 2 | 2,000 (2 of 2) | 40.0 | 100.0 | 0.50 |" in said
    assert "| Taxi | dqn | 2 | 7,000 (1 of 2) | 4.0 | 100.0 | 0.50 |" in said
    assert said.endswith("boot-prior has more rewarded episodes than dqn in 1 of 2 environments; not in Acrobot.")
    assert (tmp_path / "figure.png").stat().st_size > 5000
