"""Experiments: every sweep runs, trials end when they are decided, figures come from the CSV alone."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bootdqn.agent import AGENTS
from bootdqn.cli.main import main
from bootdqn.envs.catalog import make_env
from bootdqn.experiments.catalog import EXPERIMENTS
from bootdqn.experiments.learning import measure_learning
from bootdqn.experiments.runner import Context, read_results
from bootdqn.experiments.tables import describe_scaling, largest_solved
from bootdqn.figures import Series
from bootdqn.loops.compiled import CompiledTraining
from bootdqn.stats import consecutive_episodes_to_learn, episodes_to_learn
from bootdqn.training import TrainConfig

ROOT = Path(__file__).parents[1]
PRESETS = ("smoke", "quick", "paper")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_preset_runs_to_its_figure(name, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", name, "--preset", "smoke", "--out", str(out)]) == 0
    trials = EXPERIMENTS[name].sweep("smoke")
    rows = read_results(out)
    assert [row["trial"] for row in rows] == [t.name for t in trials for _ in t.config.seeds]
    assert [(row["env"], row["agent"]) for row in rows] == [
        (t.config.env, t.config.agent_name) for t in trials for _ in t.config.seeds
    ]
    for suffix in (".png", ".svg"):
        assert (out / name).with_suffix(suffix).stat().st_size > 5000
    summary = (out / "summary.md").read_text()
    assert summary in capsys.readouterr().out
    assert summary.count("\n|") > len(trials) / 5  # a table


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_sweeps_are_well_formed(name, preset):
    trials = EXPERIMENTS[name].sweep(preset)
    names = [trial.name for trial in trials]
    assert len(set(names)) == len(names)
    assert all(name == Path(name).name and " " not in name for name in names)
    for trial in trials:
        make_env(trial.config.env)


def test_the_papers_sweep_is_the_papers():
    trials = EXPERIMENTS["chain-scaling"].sweep("paper")
    settings = {(t.config.env, t.config.agent_name) for t in trials}
    assert {
        (f"chain:{n}", a) for n in range(10, 101, 10) for a in ("boot", "thompson", "ensemble", "dqn")
    } < settings
    assert ("chain:200", "boot") in settings
    assert {(t.config.episodes, t.config.num_seeds) for t in trials} == {(2000, 3)}
    for agent in AGENTS:  # one configuration for all lengths
        assert len({t.config.agent for t in trials if t.config.agent_name == agent}) <= 1
    sizes = {make_env(t.config.env).horizon for t in EXPERIMENTS["deep-sea"].sweep("paper")}
    assert sizes == set(range(10, 51, 2))


def context(**fields):
    defaults = {"should_stop": lambda: False, "report": lambda share: None, "pool": ThreadPoolExecutor(2)}
    return Context(**(defaults | fields))


SMALL = TrainConfig(env="chain:4", agent=AGENTS["boot"], episodes=260, num_seeds=2)


def test_a_trial_ends_when_decided_and_says_what_the_whole_would(monkeypatch):
    monkeypatch.setattr("bootdqn.loops.compiled.MAX_STEPS_PER_CHUNK", 120)  # ten episodes
    shares: list[float] = []
    rows = measure_learning(SMALL, context(report=shares.append))
    whole = CompiledTraining(make_env("chain:4"), SMALL.agent, seeds=(0, 1), episodes=260)
    flags = [(c.metrics.optimal, c.metrics.greedy_optimal) for c in whole.chunks()]
    training, greedy = (np.concatenate(parts, axis=1) for parts in zip(*flags, strict=True))
    assert rows is not None
    for seed, row in enumerate(rows):
        assert row["episodes_to_learn"] == episodes_to_learn(training[seed])
        assert row["consecutive_greedy_episodes"] == consecutive_episodes_to_learn(greedy[seed])
        assert row["first_optimal_episode"] == int(np.argmax(training[seed])) + 1
        assert row["episodes"] == max(row["episodes_to_learn"], row["consecutive_greedy_episodes"]) < 200
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_trial_that_is_told_to_stop_has_no_rows():
    assert measure_learning(SMALL, context(should_stop=lambda: True)) is None


def test_a_killed_sweep_goes_on_to_the_same_results(tmp_path):
    command = [sys.executable, "-m", "bootdqn", "reproduce", "chain-heads", "--preset", "smoke", "--out"]
    out = tmp_path / "out"
    process = subprocess.Popen([*command, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("trials/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    num_finished = len(list(out.glob("trials/*.json")))
    num_trials = len(EXPERIMENTS["chain-heads"].sweep("smoke"))
    assert 0 < num_finished < num_trials
    assert main([*command[3:], str(out)]) == 0
    assert main([*command[3:], str(tmp_path / "whole")]) == 0
    for name in ("results.csv", "summary.md", "chain-heads.svg"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


COMMITTED = [path.parent.name for path in sorted((ROOT / "results").glob("*/sweep.json"))]


def test_every_experiment_has_committed_results():
    assert set(COMMITTED) == set(EXPERIMENTS)


@pytest.mark.parametrize("name", COMMITTED)
def test_figures_and_tables_come_from_the_committed_csv_alone(name, tmp_path, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("a plot must not train")

    monkeypatch.setattr(CompiledTraining, "__init__", forbidden)
    results = ROOT / "results" / name
    summary = EXPERIMENTS[name].plot(read_results(results), tmp_path / name)
    assert (tmp_path / f"{name}.png").exists()
    assert summary == (results / "summary.md").read_text().strip()
    # The page of the experiment shows these tables, and the figure.
    page = (ROOT / "docs" / f"{name}.md").read_text()
    assert json.loads((results / "sweep.json").read_text())["command"] in page
    assert f"results/{name}/{name}.png" in page
    tables = [part for part in summary.split("\n\n") if part.startswith("|")]
    assert tables
    for table in tables:
        assert table in page


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_trials_are_those_of_the_sweep(name):
    results = ROOT / "results" / name
    trials = EXPERIMENTS[name].sweep("paper")
    for trial in trials:
        record = json.loads((results / "trials" / f"{trial.name}.json").read_text())
        assert record["config"] == json.loads(json.dumps(dataclasses.asdict(trial.config)))
        assert record["git_revision"]
        assert not record["git_revision"].endswith("-dirty")
    assert len(list((results / "trials").iterdir())) == len(trials)


def test_growth_is_fitted_beyond_the_least_there_can_be():
    times = {n: [99 + 0.5 * n**2] for n in (10.0, 20.0, 40.0, 80.0)} | {160.0: [None]}
    text = describe_scaling(times)
    assert "b = 2.00 (95% interval 2.00 to 2.00)" in text
    assert "4 seeds that learned (1 did not)" in text
    assert "polynomial law fits better" in text
    assert "too few sizes" in describe_scaling({10: [120, 130], 20: [150, None]})


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({10: [1, 2], 20: [3, 4]}, "20"),
        ({10: [1, 2], 20: [3, None]}, "10"),
        ({10: [None, 2]}, "none"),
        ({10: [1], 20: [None], 30: [3]}, "10 without a gap, 30 with"),
        ({10: [None], 20: [5]}, "none without a gap, 20 with"),
    ],
)
def test_largest_solved(times, expected):
    assert largest_solved(Series("boot", "black", times)) == expected


def test_unknown_names_get_a_hint(capsys):
    assert main(["reproduce", "chain-scalling"]) == 2
    assert "did you mean chain-scaling?" in capsys.readouterr().err
