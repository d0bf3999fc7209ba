"""Experiments: every sweep runs, trials end when they are decided, figures come from the CSV alone."""

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor

from bootdqn.analysis.stats import BSUITE_LOGGED, consecutive_episodes_to_learn, episodes_to_learn
from bootdqn.cli.main import main
from bootdqn.core.config import AGENTS
from bootdqn.envs.registry import make_env
from bootdqn.errors import UserError
from bootdqn.experiments.deep_sea import run as deep_sea_run
from bootdqn.experiments.engine.experiment import CsvRow
from bootdqn.experiments.engine.runner import is_same, read_results
from bootdqn.experiments.registry import EXPERIMENTS
from bootdqn.experiments.shared.learning_tables import describe_scaling, largest_solved, learned_at
from bootdqn.experiments.shared.learning_time import measure_learning
from bootdqn.experiments.shared.regret import (
    checkpoints,
    final_cell,
    final_values,
    measure_regret,
    ratio_interval,
    regret_curves,
)
from bootdqn.loops.compiled import EpisodeMetrics
from bootdqn.loops.seeds import Chunk, SeedLoop
from bootdqn.plots.times import Series
from bootdqn.runs.config import NAMED_AGENTS, RunConfig, loop_of_agent
from bootdqn.runs.records import PER_SEED
from bootdqn.runs.run import Run
from bootdqn.runs.seed_results import make_seed_loop
from bootdqn.types import UpdateMetrics
from trials import context

ROOT = Path(__file__).parents[2]
PRESETS = ("smoke", "quick", "paper")


@pytest.mark.integration
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_preset_runs_to_its_figure(name, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", name, "--preset", "smoke", "--out", str(out)]) == 0
    trials = EXPERIMENTS[name].sweep("smoke")
    rows = read_results(out)
    if getattr(trials[0].config, "loop", None) in PER_SEED:
        found = dict.fromkeys((row["trial"], row["env"], row["agent"], row["seed"]) for row in rows)
        assert list(found) == [
            (t.name, t.config.env, t.config.agent_name, str(seed)) for t in trials for seed in t.config.seeds
        ]
    else:
        assert list(dict.fromkeys(row["trial"] for row in rows)) == [t.name for t in trials]
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
        if getattr(trial.config, "loop", None) in PER_SEED:
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


SMALL = RunConfig(loop="compiled", env="chain:4", agent=AGENTS["boot"], episodes=260, num_seeds=2)


@pytest.mark.integration
def test_a_trial_ends_when_decided_and_says_what_the_whole_would(monkeypatch):
    monkeypatch.setattr("bootdqn.loops.compiled.MAX_STEPS_PER_CHUNK", 120)  # ten episodes
    shares: list[float] = []
    rows = measure_learning(SMALL, context(report=shares.append))
    whole = make_seed_loop(SMALL)
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


@pytest.mark.integration
def test_one_that_dithers_is_judged_without(monkeypatch):
    monkeypatch.setattr("bootdqn.loops.compiled.MAX_STEPS_PER_CHUNK", 120)
    config = dataclasses.replace(SMALL, agent_name="dqn", agent=AGENTS["dqn"], num_seeds=1)
    (row,) = measure_learning(config, context()) or []
    assert row["episodes"] == row["consecutive_greedy_episodes"] < 260
    assert row["greedy_episodes_to_learn"] <= row["episodes"]
    assert row["episodes_to_learn"] is None  # with epsilon near 1, it is far from 100 optimal episodes


@pytest.mark.integration
def test_what_is_not_learned_goes_on_to_the_end():
    # Heads that never learn, and start pessimistic about right: no episode is optimal.
    agent = dataclasses.replace(AGENTS["boot"], num_heads=1, learning_start_steps=10**6)
    config = RunConfig(loop="compiled", env="chain:30,scrambled", agent=agent, episodes=30)
    (row,) = measure_learning(config, context()) or []
    assert row == {
        "seed": 0,
        "episodes_to_learn": None,
        "greedy_episodes_to_learn": None,
        "consecutive_greedy_episodes": None,
        "first_optimal_episode": None,
        "episodes": 30,
    }


@pytest.mark.integration
@pytest.mark.parametrize(
    ("learns", "stochastic"), [(True, False), (False, False), (False, True)], ids=["solved", "hopeless", "windy"]
)
def test_deep_sea_ends_when_decided_whatever_the_chunks(learns, stochastic, monkeypatch):
    agent = AGENTS["boot"] if learns else dataclasses.replace(AGENTS["boot"], learning_start_steps=10**6)
    env = "deep_sea:5" + (",stochastic" if stochastic else "")
    config = RunConfig(loop="compiled", env=env, agent=agent, episodes=300, seed=3)
    found = []
    for steps in (5, 500):
        monkeypatch.setattr("bootdqn.loops.compiled.MAX_STEPS_PER_CHUNK", steps)
        found.append(deep_sea_run(config, context()))
    assert found[0] == found[1]
    assert found[0] is not None
    row = found[0][0]
    assert row["solved"] == learns
    if learns:
        assert row["good_episodes"] > 0.1 * row["episodes"]
        assert row["episodes"] in BSUITE_LOGGED
    else:  # as soon as 90% (80% in the wind) of all 300 were bad
        assert row["episodes"] - row["good_episodes"] == (240 if stochastic else 270)


def test_a_loss_that_is_not_finite_counts_only_before_the_decision():
    updates = UpdateMetrics(*[jnp.array([[0.1, 0.1, jnp.nan, 0.1]])] * 3)
    metrics = EpisodeMetrics(*[jnp.zeros((1, 4))] * 8, updates=updates)
    chunk = Chunk(10, (7,), metrics)
    loop = make_seed_loop(SMALL)
    loop.require_finite_chunk(chunk, 7, 12)
    with pytest.raises(UserError, match="seed 7 is no longer finite in episode 13"):
        loop.require_finite_chunk(chunk, 7, 13)
    with pytest.raises(UserError, match="in episode 13"):
        loop.require_finite_chunk(chunk, 7)


@pytest.mark.integration
def test_regret_of_a_training_that_diverged_is_no_result():
    agent = dataclasses.replace(AGENTS["boot"], learning_rate=1e30, num_heads=2, hidden=(4,))
    config = RunConfig(loop="compiled", env="stochastic_chain", agent=agent, episodes=100)
    with pytest.raises(UserError, match="training diverged"):
        measure_regret(config, context())


@pytest.mark.integration
def test_a_trial_that_is_told_to_stop_has_no_rows():
    assert measure_learning(SMALL, context(should_stop=lambda: True)) is None


ON_ONE_CORE = """
import os, sys
from bootdqn.cli.main import main
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.integration
def test_a_killed_sweep_goes_on_to_the_same_results(tmp_path):
    arguments = ["reproduce", "chain-heads", "--preset", "smoke", "--out"]
    out = tmp_path / "out"
    # Trials run one after another, so that some are finished and some are not.
    command = [sys.executable, "-c", ON_ONE_CORE, *arguments, str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("trials/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    num_finished = len(list(out.glob("trials/*.json")))
    num_trials = len(EXPERIMENTS["chain-heads"].sweep("smoke"))
    assert 0 < num_finished < num_trials
    assert main([*arguments, str(out)]) == 0
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    for name in ("results.csv", "summary.md", "chain-heads.svg"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_named_agents_are_the_best_of_the_grid():
    rows = read_results(ROOT / "results" / "chain-tuning")
    for agent in ("boot", "thompson", "ensemble", "dqn"):
        scores: dict[tuple[float, float], list[float]] = {}
        for row in rows:
            if row["agent"] == agent:
                point = float(row["initial_spread"]), float(row["learning_rate"])
                scores.setdefault(point, []).append(learned_at(row) or 1000)
        assert {len(times) for times in scores.values()} == {6}  # the same budget for every point
        best = min(scores, key=lambda point: np.mean(scores[point]))
        assert best == (AGENTS[agent].initial_spread, AGENTS[agent].learning_rate)


COMMITTED = [path.parent.name for path in sorted((ROOT / "results").glob("*/sweep.json"))]


NOT_RUN = {"atari-heads", "atari-sharing", "atari-normalization"}
"""Hours on two cores; docs/atari.md says so."""


def test_every_experiment_has_committed_results():
    assert set(COMMITTED) == set(EXPERIMENTS) - NOT_RUN


def page_of(name: str) -> str:
    """The page on an experiment; those on Atari share one."""
    return (ROOT / "docs" / ("atari.md" if name.startswith("atari-") else f"{name}.md")).read_text()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.integration] * (name != "deep-sea")) for name in COMMITTED]
)
def test_figures_and_tables_come_from_the_committed_csv_alone(name, tmp_path, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("a plot must not train")

    monkeypatch.setattr(SeedLoop, "__init__", forbidden)
    for fit in ("fit_members", "fit_dropout"):
        monkeypatch.setattr(f"bootdqn.regression.estimators.{fit}", forbidden)
    monkeypatch.setattr(GaussianProcessRegressor, "fit", forbidden)
    results = ROOT / "results" / name
    summary = EXPERIMENTS[name].plot(read_results(results), tmp_path / name)
    assert (tmp_path / f"{name}.png").exists()
    assert summary == (results / "summary.md").read_text().strip()
    # The page of the experiment shows these tables, and the figure.
    page = page_of(name)
    assert json.loads((results / "sweep.json").read_text())["command"] in page
    assert f"results/{name}/{name}.png" in page
    tables = [part for part in summary.split("\n\n") if part.startswith("|")]
    assert tables
    for table in tables:
        assert table in page


@pytest.mark.integration
@pytest.mark.parametrize("name", COMMITTED)
def test_the_first_trials_can_be_drawn_alone(name, tmp_path):
    rows = read_results(ROOT / "results" / name)
    trials = list(dict.fromkeys(row["trial"] for row in rows))
    for count in (1, 2, 3, len(trials) // 2, len(trials) - 1):
        summary = EXPERIMENTS[name].plot(
            [row for row in rows if row["trial"] in trials[:count]], tmp_path / "part"
        )
        assert "| " in summary


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_trials_are_those_of_the_sweep(name):
    results = ROOT / "results" / name
    preset = json.loads((results / "sweep.json").read_text())["preset"]
    trials = {trial.name: trial for trial in EXPERIMENTS[name].sweep(preset)}
    committed = {path.stem: json.loads(path.read_text()) for path in (results / "trials").iterdir()}
    if not name.startswith("atari-"):  # of which there are some runs only
        assert (preset, committed.keys()) == ("paper", trials.keys())
    for trial_name, record in committed.items():
        assert is_same(trials[trial_name].config, record["config"])
        assert record["git_revision"]
        assert not record["git_revision"].endswith("-dirty")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["boot", "psrl"])
def test_regret_is_summed_up_to_its_checkpoints(name):
    config = RunConfig(
        loop=loop_of_agent(name),
        env="stochastic_chain,noiseless",
        agent_name=name,
        agent=NAMED_AGENTS[name],
        episodes=40,
        num_seeds=2,
    )
    shares: list[float] = []
    rows = measure_regret(config, context(report=shares.append))
    run = Run(config)
    assert run.train()
    result = run.result
    assert rows is not None
    assert [(row["seed"], row["episode"]) for row in rows] == [(s, e) for s in (0, 1) for e in checkpoints(40)]
    for row in rows:
        metrics, end = result.metrics[row["seed"]], row["episode"]
        realised = end * 0.824711 - metrics.episode_return[:end].sum()
        assert row["regret"] == pytest.approx(realised, abs=1e-3)
        assert row["pseudo_regret"] == pytest.approx(metrics.regret[:end].sum(), abs=1e-3)
    assert shares[-1] == 1
    assert measure_regret(config, context(should_stop=lambda: True)) is None


def test_checkpoints_suit_both_kinds_of_axes():
    points = checkpoints(10_000).tolist()
    assert set(range(500, 10_001, 500)) < set(points)
    assert {10, 18, 32, 56, 100, 178, 1000} < set(points)
    assert checkpoints(3).tolist() == [1, 2, 3]
    assert checkpoints(1).tolist() == [1]


def test_regret_curves_have_the_interval_of_the_mean():
    rows = [{"agent": "psrl", "episode": "5", "seed": str(s), "regret": str(v)} for s, v in enumerate((1, 2, 3))]
    curve, variant = regret_curves({"psrl": rows, "psrl-other": rows[:1]}, "regret")
    assert curve.means.tolist() == [2]
    assert curve.half_widths[0] == pytest.approx(4.302653 / 3**0.5)  # Student's t with two degrees of freedom
    assert np.isnan(variant.half_widths).all()
    assert (variant.agent, variant.style != curve.style) == ("psrl", True)
    earlier = {**rows[0], "episode": "4", "regret": "100"}
    assert final_values([earlier, *rows], "regret") == [1, 2, 3]
    assert final_cell([1.0, 2.0, 6.0]) == "3 ± 7 (2)"
    assert final_cell([1.0]) == "1"
    assert final_cell([]) == ""


def test_the_interval_of_a_ratio():
    assert ratio_interval([6.0], [4.0]) == "1.50"
    rng = np.random.default_rng(1)
    above, below = rng.normal(20, 2, 400), rng.normal(10, 1, 400)
    ratio, low, high = map(float, re.findall(r"[\d.]+", ratio_interval(above.tolist(), below.tolist())))
    assert low < 2 < high
    # Each mean is known to 0.1 / sqrt(400) of itself, the ratio to sqrt(2) as much.
    assert high - low == pytest.approx(2 * 1.96 * ratio * 0.1 * 2**0.5 / 20, rel=0.2)


def test_growth_over_a_tenfold():
    rows: list[CsvRow] = [
        {
            "trial": "ucrl2",
            "agent": "ucrl2",
            "env": "stochastic_chain",
            "episode": str(e),
            "seed": "0",
            "pseudo_regret": str(7 * e**0.5),
        }
        for e in (10, 100, 1000)
    ]
    with TemporaryDirectory() as folder:
        table = EXPERIMENTS["ucrl2-long"].plot(rows, Path(folder) / "x")
    # S sqrt(A T) = 6 sqrt(2 * 15 * 1000)
    assert "| 10 | 22 | 104 |" in table
    assert "| 1,000 | 221 (0.50) | 1,039 |" in table


def test_growth_is_fitted_beyond_the_least_there_can_be():
    text = describe_scaling({n: [99 + 0.5 * n**2] for n in (10.0, 20.0, 40.0, 80.0, 100.0, 160.0)})
    whole, upper = text.split("; ")
    assert whole.startswith(
        "episodes beyond 99 for N = 10 to 160 grow as N^b with b = 2.00 (95% interval 2.00 to 2.00)"
    )
    assert "the power fits better" in whole
    assert upper.startswith("for the upper half, N = 80 to 160 grow as N^b with b = 2.00")
    assert "too few sizes" in describe_scaling({10: [120, 130], 20: [150, None], 30: [200, 200]})


def test_growth_is_not_fitted_to_survivors():
    # At N = 40 only the quick one of three made it: counting it alone would flatten the law.
    times = {n: [99 + n**2 * f for f in (0.5, 1.0, 2.0)] for n in (5.0, 10.0, 20.0, 30.0)}
    assert describe_scaling(times | {40.0: [99 + 0.5 * 40.0**2, None, None]}) == describe_scaling(times)


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
