"""Gymnasium environments whose rewards are rare: who finds one first, and who finds more, by default options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bootdqn.core.config import GYM_AGENTS, AgentConfig
from bootdqn.experiments.engine.cost import estimate_cost
from bootdqn.experiments.engine.experiment import Context, CsvRow, Experiment, Preset, ResultRow, Trial
from bootdqn.experiments.engine.resumable_runs import run_or_resume
from bootdqn.experiments.shared.atari_tables import table
from bootdqn.experiments.shared.learning_tables import number
from bootdqn.experiments.shared.rare_rewards import TASKS
from bootdqn.plots.style import AGENT_COLOURS, COLOURS
from bootdqn.plots.times import save_dots_by_row
from bootdqn.runs.config import RunConfig, default_config
from bootdqn.runs.directory import read_table

_EXPLORES = GYM_AGENTS["boot-prior"]
_AGENTS: dict[str, tuple[str, AgentConfig]] = {
    "boot-prior": ("boot-prior", _EXPLORES),
    "dqn": ("dqn", GYM_AGENTS["dqn"]),
    "dqn-same-settings": (
        "dqn",
        replace(
            _EXPLORES,
            num_heads=1,
            prior_scale=0.0,
            prior_range=1.0,
            explorer_share=1.0,
            head_candidates=1,
            bound_values=False,
        ),
    ),
}
"""The name and configuration of an agent by its label; `dqn-same-settings` has one head, and else the network,
inputs, replay, learning rate, discount and random actions of `boot-prior`."""
_TASKS: dict[Preset, Sequence[str]] = {
    "smoke": ("CartPole, sparse",),
    "quick": tuple(TASKS),
    "paper": tuple(TASKS),
}
_STEPS: dict[Preset, int] = {"smoke": 300, "quick": 15_000, "paper": 50_000}
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 1, "paper": 2}
_NUM_SEEDS_OF_CONTROL = 1
"""The most seeds of `dqn-same-settings`, which shows how much is due to settings."""
_LAST = 20
"""Episodes at the end of a run whose mean return is reported."""


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of every agent on every environment, the first seed of all before the second of any."""
    return [
        _trial(task, label, seed, _STEPS[preset])
        for seed in range(_NUM_SEEDS[preset])
        for task in _TASKS[preset]
        for label in _AGENTS
        if label != "dqn-same-settings" or seed < _NUM_SEEDS_OF_CONTROL
    ]


def _trial(task: str, label: str, seed: int, steps: int) -> Trial:
    name = "-".join([*task.replace(",", "").lower().split(), label, f"seed{seed}"])
    agent_name, agent = _AGENTS[label]
    config = default_config(TASKS[task].env, agent_name)
    return Trial(name, replace(config, agent=agent, steps=steps, evaluate_every_steps=0, seed=seed))


def run(config: RunConfig, context: Context) -> list[ResultRow] | None:
    """Train to the end, resuming the run if it was begun, and count its rewarded episodes.

    Columns:
        episodes: the number of training episodes.
        rewarded: the number of those that reached the goal, or had a positive return where there is none.
        first_reward_step: environment steps at the end of the first of them; empty if there was none.
        last_return: the mean return of the last 20 training episodes.
    """
    path = _directory(config, context)
    if not run_or_resume(config, path, context):
        return None
    rows = read_table(path / "metrics.csv")
    goal_ends = TASKS[_task_of(config)].goal_ends
    rewarded = [row for row in rows if (int(row["terminated"]) if goal_ends else float(row["return"]) > 0)]
    last = [float(row["return"]) for row in rows[-_LAST:]]
    return [
        {
            "episodes": len(rows),
            "rewarded": len(rewarded),
            "first_reward_step": int(rewarded[0]["step"]) if rewarded else None,
            "last_return": float(np.mean(last)) if last else None,
        }
    ]


def _directory(config: RunConfig, context: Context) -> Path:
    """Return the run directory of a trial, beside the sweep, whose directory holds results alone."""
    return context.out.parent / "gym-runs" / f"{context.trial}-{config.steps}steps"


def _task_of(config: RunConfig) -> str:
    return next(name for name, task in TASKS.items() if task.env == config.env)


def _describe(config: RunConfig) -> ResultRow:
    return {
        "task": _task_of(config),
        "env": config.env,
        "agent": next(label for label, (_, agent) in _AGENTS.items() if agent == config.agent),
        "seed": config.seed,
        "steps": config.steps,
    }


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw steps to the first reward and rewarded episodes, with a row per environment; return a table."""
    tasks = [task for task in TASKS if any(row["task"] == task for row in rows)]
    agents = [agent for agent in _AGENTS if any(row["agent"] == agent for row in rows)]
    steps = max(int(row["steps"]) for row in rows)
    by_pair = {
        (task, agent): [row for row in rows if (row["task"], row["agent"]) == (task, agent)]
        for task in tasks
        for agent in agents
    }
    panels = {
        f"steps to the first reward ({steps:,}: none)": "first_reward_step",
        "rewarded episodes (0: none)": "rewarded",
    }
    missing = {"first_reward_step": float(steps), "rewarded": 0.0}
    save_dots_by_row(
        stem,
        f"Rare rewards, default options, {steps:,} steps",
        tasks,
        {
            title: {
                agent: [_numbers(by_pair[task, agent], column, missing[column]) for task in tasks]
                for agent in agents
            }
            for title, column in panels.items()
        },
        colours=AGENT_COLOURS | {"dqn-same-settings": COLOURS[0]},
    )
    heading = ["environment", "agent", "seeds", "first reward", "rewarded", "episodes", "last 20 returns"]
    lines = [_line(task, agent, group) for (task, agent), group in by_pair.items() if group]
    return "\n\n".join(
        [
            f"Means over seeds after {steps:,} steps. First reward: the median of seeds of the environment steps "
            "at the end of the first rewarded training episode, with the number of seeds that had one.",
            table(heading, lines, texts=2),
            _verdict(tasks, by_pair),
        ]
    )


def _numbers(rows: Iterable[CsvRow], column: str, missing: float) -> list[float]:
    found = [number(row[column]) for row in rows]
    return [missing if value is None else value for value in found]


def _line(task: str, agent: str, rows: Sequence[CsvRow]) -> list[str]:
    firsts = [float(row["first_reward_step"]) for row in rows if row["first_reward_step"]]
    first = f"{np.median(firsts):,.0f} ({len(firsts)} of {len(rows)})" if firsts else f"none (0 of {len(rows)})"
    means = [np.mean([float(row[name]) for row in rows]) for name in ("rewarded", "episodes", "last_return")]
    return [task, agent, str(len(rows)), first, f"{means[0]:,.1f}", f"{means[1]:,.1f}", f"{means[2]:.2f}"]


def _verdict(tasks: Sequence[str], by_pair: dict[tuple[str, str], list[CsvRow]]) -> str:
    """Say in how many environments the default agent has more rewarded episodes than `dqn`."""
    both = [task for task in tasks if by_pair.get((task, "boot-prior")) and by_pair.get((task, "dqn"))]

    def mean(task: str, agent: str) -> float:
        return float(np.mean([float(row["rewarded"]) for row in by_pair[task, agent]]))

    more = [task for task in both if mean(task, "boot-prior") > mean(task, "dqn")]
    others = ", ".join(task for task in both if task not in more)
    return f"boot-prior has more rewarded episodes than dqn in {len(more)} of {len(both)} environments" + (
        f"; not in {others}." if others else "."
    )


EXPERIMENT = Experiment(
    name="gym-exploration",
    summary="Gymnasium environments with rare rewards, default options",
    sweep=sweep,
    run=run,
    describe=_describe,
    cost=estimate_cost,
    plot=plot,
)
