"""Every fault that a user's environment may have is found and named, and healthy ones have none."""

import itertools
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from bootdqn import UserError, doctor
from bootdqn.cli.main import main
from bootdqn.doctor import examine
from bootdqn.envs.vector import find_source

STEPS = 300


class Healthy(gymnasium.Env):
    """A walk whose episodes end after 10 steps; what a subclass changes is all that is wrong with it."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)
    length = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.look(), {}

    def step(self, action):
        self.time += 1
        return self.look(), self.reward(action), self.time == self.length, False, {}

    def look(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def reward(self, action):
        return float(action)


def found(source, level, **options):
    """Topics and texts of the findings of one level."""
    return {f.what: f.text for f in examine(source, steps=STEPS, **options) if f.level == level}


@pytest.mark.parametrize("source", ["CartPole-v1", "chain:10", "bootdqn/Chain-v0", "FrozenLake-v1", Healthy])
def test_healthy_environments_have_no_problem(source):
    assert found(source, "problem") == {}
    fine = found(source, "ok")
    assert fine.keys() >= {"spaces", "memory", "observations", "rewards", "episodes", "seeding"}


def test_a_healthy_environment_in_numbers(monkeypatch):
    monkeypatch.setattr(doctor, "available_memory", lambda: 10**9)
    fine = found(Healthy, "ok")
    assert fine["spaces"] == "networks see Box as 3 numbers; 2 actions"
    # Two observations of 3 numbers, action, reward and discount, and 10 heads' masks, 4 bytes each.
    assert fine["memory"] == "a replay of 100,000 steps takes 7.6 MB, and 1.0 GB is free"
    assert fine["episodes"] == "30 ended in 300 steps: 30 terminated, 0 truncated"
    assert "they reach 1 in size" in fine["rewards"]
    assert "does not look like the problem" in fine["exploration"]
    assert fine["gymnasium"] == "its checker has no complaints"


class Unseeded(Healthy):
    """Draws from a generator that no seed reaches."""

    def __init__(self):
        self.rng = np.random.default_rng()

    def look(self):
        return self.rng.uniform(-1, 1, 3).astype(np.float32)


class SeededOnce(Unseeded):
    """The same in every new environment, but not after another reset."""

    def __init__(self):
        self.rng = np.random.default_rng(0)


class UnseededLater(Healthy):
    """Seeded in the first episode only."""

    episode = 0

    def reset(self, *, seed=None, options=None):
        self.episode = 0 if seed is not None else self.episode + 1
        return super().reset(seed=seed)

    def reward(self, action):
        return float(np.random.default_rng().uniform()) if self.episode else 0.0


@pytest.mark.parametrize(
    ("env", "difference"),
    [
        (Unseeded, "two new environments differ in the observation of reset() before step 1"),
        (SeededOnce, "two resets of one environment differ in the observation of reset() before step 1"),
        (UnseededLater, "two new environments differ in the reward of step 11"),
    ],
)
def test_randomness_that_no_seed_reaches(env, difference):
    text = found(env, "problem")["seeding"]
    assert difference in text
    assert "self.np_random" in text
    assert "killed run" in text


def returns(look, space=Healthy.observation_space):
    """An environment whose observations are `look()`."""
    return lambda: type("Odd", (Healthy,), {"look": lambda self: look(), "observation_space": space})()


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (returns(lambda: np.zeros(4, np.float32)), "has the shape (4,), and its space (3,)"),
        (returns(lambda: np.zeros(3)), "is of float64, and its space of float32"),
        (returns(lambda: np.array([0, 7, 0], np.float32)), "holds 7 where its space goes from -1 to 1"),
        (returns(lambda: np.array([0, np.nan, 0], np.float32)), "is not finite"),
        (returns(lambda: None), "has the shape (), and its space (3,)"),
        (returns(lambda: 4, spaces.Discrete(4)), "is 4, and its space Discrete(4)"),
        (
            returns(
                lambda: (1, np.array([0, 2], np.int8)), spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)])
            ),
            "in its part 1 is [0, 2], and its space MultiBinary(2)",
        ),
        (
            returns(lambda: {"a": 0}, spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2))),
            "has the parts ['a'], and its space ['a', 'b']",
        ),
    ],
)
def test_observations_outside_their_space(source, fault):
    text = found(source, "problem")["observations"]
    assert text.startswith(f"the observation of reset() before step 1 {fault};")


def rewards(*values):
    """An environment whose rewards are `values`, over and over."""

    class Paid(Healthy):
        def reset(self, *, seed=None, options=None):
            self.values = itertools.cycle(values) if seed is not None else self.values
            return super().reset(seed=seed)

        def reward(self, action):
            return next(self.values)

    return Paid


def test_rewards_that_are_not_finite():
    for value in (float("nan"), float("-inf"), 1e100):  # the last is none in replay's precision
        text = found(rewards(0.0, 0.0, value), "problem")["rewards"]
        assert text.startswith(f"the reward of step 3 is {value}")


def test_rewards_of_another_order_than_values():
    assert "divide them by 1,000" in found(rewards(5000.0, 1.0), "advice")["rewards"]
    assert "divide them by 10," in found(rewards(100.0, *[0.0] * 9), "advice")["rewards"]
    assert "multiply them" in found(rewards(1e-4, -1e-4), "advice")["rewards"]
    assert found(rewards(0.0), "ok")["rewards"] == "all are 0"


def test_exploration_that_random_play_cannot_do():
    text = found(rewards(0.0), "advice")["exploration"]
    assert text.startswith("no reward in 300 random steps")
    assert "explorers of the default agent should help; use it rather than dqn" in text
    text = found(rewards(-1.0), "advice")["exploration"]  # as in MountainCar
    assert text.startswith(
        "100.0% of random steps have a reward, and 0 of 30 random episodes return other than -10"
    )
    text = found(rewards(*[0.0] * 299, 1.0), "advice")["exploration"]
    assert "1 of 30 random episodes return other than 0" in text


def test_episodes_that_never_end():
    source = type("Endless", (Healthy,), {"length": 10**9})
    assert "gymnasium.wrappers.TimeLimit" in found(source, "advice")["episodes"]
    limited = lambda: gymnasium.wrappers.TimeLimit(source(), 30)  # noqa: E731
    text = found(limited, "ok")["episodes"]
    assert "0 terminated, 10 truncated" in text
    assert "return terminated=True if the task is over there" in text
    both = lambda: gymnasium.wrappers.TimeLimit(Healthy(), 10)  # noqa: E731
    assert "30 set both flags" in found(both, "ok")["episodes"]


class Broken(Healthy):
    """Fails at its step 17."""

    length = 10**9

    def reward(self, action):
        return 1.0 / (17 - self.time)


def broken_maker():
    raise RuntimeError("no display\nand more")


class OldReset(Healthy):
    """Of the time before Gymnasium."""

    def reset(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.look()


@pytest.mark.parametrize(
    ("source", "failure"),
    [
        (Broken, "step 17 failed: ZeroDivisionError: float division by zero;"),
        (broken_maker, "making the environment failed: RuntimeError: no display;"),
        (OldReset, "reset() before step 1 failed: TypeError: "),
        (rewards(0.0, None), "step 2 failed: TypeError: "),
    ],
)
def test_exceptions_become_findings(source, failure):
    assert found(source, "problem")["failure"].startswith(failure)


def test_spaces_that_are_not_supported():
    for name, space in (("action_space", spaces.Box(-1, 1, (2,))), ("observation_space", spaces.Text(5))):
        source = type("Odd", (Healthy,), {name: space})
        (finding,) = examine(source)
        assert finding.level == "problem"
        assert f"{type(space).__name__} are not supported" in finding.text


def test_more_memory_than_there_is(monkeypatch):
    monkeypatch.setattr(doctor, "available_memory", lambda: 76_000_000)
    assert "memory" in found(Healthy, "ok", replay_capacity=999_999)
    text = found(Healthy, "problem", replay_capacity=2_000_000)["memory"]
    assert text.startswith(
        "a replay of 2,000,000 steps takes 152.0 MB, and 76.0 MB is free: set replay_capacity to "
    )
    assert "500,000" in text


def test_what_gymnasium_says_is_passed_on():
    text = found("CartPole-v1", "advice")["gymnasium"]
    assert text.startswith("its checker warns: A Box observation space m")
    shared = np.zeros(3, np.float32)
    text = found(returns(lambda: shared), "problem")["gymnasium"]
    assert text.startswith("its checker stops at AssertionError: The observations returned by")


def test_slow_environments_are_told_of_processes(monkeypatch):
    monkeypatch.setattr(doctor, "_SLOW", float("inf"))
    assert "vectorization='async'" in found(Healthy, "advice")["speed"]


def test_what_cannot_be_looked_at():
    for options in ({"steps": 99}, {"seed": -1}, {"seed": 2**31}):
        with pytest.raises(UserError, match="must be at least"):
            examine(Healthy, **options)
    with pytest.raises(UserError, match="Gymnasium cannot make 'NoSuch-v0'"):
        examine("NoSuch-v0")
    with pytest.raises(UserError, match=r"should return a gymnasium\.Env, got int"):
        examine(lambda: 3)  # pyright: ignore[reportArgumentType]


def test_names_of_makers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    (tmp_path / "doctor_envs.py").write_text("def make_env(): ...\nNUMBER = 3\n")
    (tmp_path / "doctor_broken.py").write_text("raise RuntimeError('half\\nway')\n")
    source = find_source("doctor_envs:make_env")
    assert callable(source)
    assert source.__name__ == "make_env"
    for name in ("CartPole-v1", "chain:20", "deep_sea:5,stochastic", "some_module:Pong-v5"):
        assert find_source(name) == name
    for name, message in (
        ("doctor_nowhere:make", "cannot import 'doctor_nowhere' .* No module named 'doctor_nowhere'"),
        ("doctor_broken:make", "cannot import 'doctor_broken' .* RuntimeError: half$"),
        ("doctor_envs:make", "'doctor_envs' has no callable 'make'"),
        ("doctor_envs:NUMBER", "'doctor_envs' has no callable 'NUMBER'"),
        (":make", "cannot import ''"),
    ):
        with pytest.raises(UserError, match=message):
            find_source(name)


@pytest.mark.integration
def test_a_maker_that_is_named_can_be_trained_on_and_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "named_envs.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    tiny = ["--heads", "2", "--hidden", "4", "--steps", "60", "--evaluate-every-steps", "0"]
    assert main(["train", "named_envs:make", *tiny, "--out", "named"]) == 0
    assert main(["train", "CartPole-v1", *tiny, "--out", "known"]) == 0
    named, known = (Path(run, "metrics.csv").read_text() for run in ("named", "known"))
    assert named == known
    capsys.readouterr()
    assert main(["evaluate", "named", "--episodes", "1"]) == 0
    assert capsys.readouterr().out.startswith("named_envs:make, 1 episodes by vote")


def test_the_verb(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor", "CartPole-v1", "--steps", "200", "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "observations  finite, and inside their space" in text
    assert ", 0 problem\n" in text
    assert main(["doctor", "Pendulum-v1"]) == 1
    text = capsys.readouterr().out
    assert "problem  spaces  actions of Box are not supported" in text
    assert text.endswith("0 ok, 0 advice, 1 problem; fix the problems before a long run\n")
    assert main(["doctor", "no_such_module:make"]) == 2
    assert capsys.readouterr().err.startswith("bootdqn: error: cannot import 'no_such_module'")
