"""bsuite's DeepSea in its deterministic and stochastic variants, with bsuite's own score."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bootdqn.analysis.stats import deep_sea_score, deep_sea_solved, deep_sea_threshold, episodes_to_learn
from bootdqn.core.config import AGENTS
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.envs.registry import make_env
from bootdqn.experiments.engine.experiment import Context, CsvRow, Preset, ResultRow, Trial
from bootdqn.experiments.shared.learning_tables import (
    describe_scaling,
    episode_limit,
    labelled_series,
    largest_solved,
    number,
    times_table,
)
from bootdqn.experiments.shared.learning_time import History, learning_experiment, train_until
from bootdqn.plots.times import Panel, save_times_to_learn
from bootdqn.runs.config import RunConfig

SIZES: dict[Preset, tuple[int, ...]] = {"smoke": (3, 4), "quick": (6, 8, 10), "paper": tuple(range(10, 51, 2))}
_EPISODES: dict[Preset, int] = {"smoke": 50, "quick": 1000, "paper": 10_000}


def size_trial(preset: Preset, size: int, agent: str, *, options: str = "", seed: int = 0) -> Trial:
    """Make the trial of an agent at one size, with one seed; `options` are those of the environment."""
    name = f"size{size}-{options.removeprefix(',') or 'deterministic'}"
    return Trial(
        f"{name}-seed{seed}" if seed else name,
        RunConfig(
            loop="compiled",
            env=f"deep_sea:{size}{options}",
            agent_name=agent,
            agent=AGENTS[agent],
            episodes=_EPISODES[preset],
            seed=seed,
        ),
    )


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of every size in both variants, with one seed each as in bsuite, small sizes first."""
    return [
        size_trial(preset, size, "boot", options=options)
        for size in SIZES[preset]
        for options in ("", ",stochastic")
    ]


def run(config: RunConfig, context: Context) -> list[ResultRow] | None:
    """Train until it is known whether bsuite would call the size solved.

    Columns:
        seed: the seed.
        solved: whether bsuite calls the size solved, because few enough episodes were bad at one that it logs.
        episodes: the number of that episode or, if unsolved, of the one after which it could no longer be solved.
        first_optimal_episode: the first training episode that was not bad; empty if all were.
        good_episodes: the number of episodes that were not bad.
    """
    env = make_env(str(config.env))
    stochastic = isinstance(env, DeepSea) and env.stochastic
    fatal = math.ceil(deep_sea_threshold(stochastic=stochastic) * config.episodes)

    def decided_at(history: History) -> int | None:
        bad = ~history.training
        solved, episode = deep_sea_solved(bad, stochastic=stochastic)
        # With so many bad episodes it cannot be solved any more.
        return episode if solved else episodes_to_learn(bad, fatal)

    histories = train_until(config, context, decided_at)
    if histories is None:
        return None
    return [
        {
            "seed": seed,
            "solved": int(deep_sea_solved(~history.training, stochastic=stochastic)[0]),
            "episodes": len(history.training),
            "first_optimal_episode": episodes_to_learn(history.training, 1),
            "good_episodes": int(np.count_nonzero(history.training)),
        }
        for seed, history in histories.items()
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw episodes to solve against size; return a table, and the score of both variants."""
    groups = {
        "deterministic": [row for row in rows if "stochastic" not in row["env"]],
        "stochastic": [row for row in rows if "stochastic" in row["env"]],
    }
    groups = {name: group for name, group in groups.items() if group}
    series = labelled_series(groups, _size, _solved_at)
    panel = Panel("", "size N", series, bound=lambda n: 100 + 2.0**n, bound_label="100 + 2^N")
    title = f"bsuite's DeepSea: {rows[0]['agent']}"
    save_times_to_learn(stem, title, [panel], cap=episode_limit(rows), ylabel="episodes to solve")
    scores = ", ".join(f"{name} {_score(group):.2f}" for name, group in groups.items())
    solved = ", ".join(f"{s.label} {largest_solved(s)}" for s in series)
    growth = _growth(groups.get("deterministic", []))
    return "\n".join(
        [
            "Episode at which bsuite calls a size solved; a dash where it does not.",
            "",
            times_table("N", series),
            "",
            f"bsuite's score over sizes to {SIZES['paper'][-1]}: {scores}. Largest size solved: {solved}.",
            "",
            f"Deterministic, to the first episode that reached the reward: {growth}",
        ]
    )


def _growth(rows: list[CsvRow]) -> str:
    """Describe how many episodes it takes to find the reward, by size."""
    [series] = labelled_series({"": rows}, _size, lambda row: number(row["first_optimal_episode"]))
    return describe_scaling(series.times, floor=0)


def _size(row: CsvRow) -> int:
    return make_env(row["env"]).horizon


def _solved_at(row: CsvRow) -> float | None:
    return float(row["episodes"]) if int(row["solved"]) else None


def _score(rows: list[CsvRow]) -> float:
    """Return bsuite's score, over its own sizes with one seed each: of several, the first."""
    first = [row for row in rows if row["seed"] == "0" and _size(row) <= SIZES["paper"][-1]]
    return deep_sea_score({_size(row): (bool(int(row["solved"])), int(row["episodes"])) for row in first})


EXPERIMENT = learning_experiment(
    name="deep-sea",
    summary="bsuite's DeepSea, deterministic and stochastic, with bsuite's score",
    sweep=sweep,
    plot=plot,
    run=run,
)
