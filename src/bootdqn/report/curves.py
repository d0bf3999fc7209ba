"""Learning curves: one chart an environment, one line an agent's configuration, averaged over seeds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bootdqn.agent import AgentConfig
from bootdqn.figures import AGENT_COLOURS, COLOURS, WINDOW, running_mean
from bootdqn.report.charts import Chart, Line
from bootdqn.report.records import Run, Training
from bootdqn.stats import stratified_bootstrap

MAX_POINTS = 200
"""Of a line."""
_DEFAULTS: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(AgentConfig())))


def make_charts(runs: Sequence[Run]) -> list[Chart]:
    """The charts of all runs that have episodes."""
    by_env: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.trainings:
            by_env.setdefault((run.env, run.unit), []).append(run)
    charts = []
    for (env, unit), members in by_env.items():
        lines: list[Line] = []
        for label, agent, trainings in _groups(members):
            colour = AGENT_COLOURS.get(agent, COLOURS[0])
            dash = sum(line.colour == colour for line in lines)
            lines.append(average(trainings, label, colour, dash))
        xlabel = "episode" if unit == "episodes" else "environment step"
        charts.append(Chart(env, xlabel, f"return, mean of {WINDOW} episodes", lines))
    return charts


def _groups(runs: Sequence[Run]) -> list[tuple[str, str, list[Training]]]:
    """(label, agent, trainings) of every configuration; the label has what differs among those of one agent."""
    groups: dict[str, tuple[Run, dict[int, Training]]] = {}
    for run in runs:
        _, trainings = groups.setdefault(json.dumps([run.agent_name, configuration(run)]), (run, {}))
        for training in run.trainings:  # a seed that was trained twice is one seed: the longer counts
            other = trainings.get(training.seed)
            trainings[training.seed] = training if other is None or training.done > other.done else other
    found = []
    for first, trainings in groups.values():
        same = [configuration(other) for other, _ in groups.values() if other.agent_name == first.agent_name]
        own = configuration(first)
        differing = [name for name in own if any(other.get(name) != own[name] for other in same)]
        label = ", ".join(f"{name.replace('_', ' ')} {json.dumps(own[name])}" for name in differing)
        name = f"{first.agent_name} ({label})" if label else first.agent_name
        found.append((name, first.agent_name, [trainings[seed] for seed in sorted(trainings)]))
    return sorted(found, key=lambda group: (group[1], -len(group[2]), group[0]))


def configuration(run: Run) -> dict[str, Any]:
    """What makes runs on one environment the same but for their seeds."""
    # A field that is younger than the run has its default.
    defaults = _DEFAULTS if "num_heads" in run.agent else {}
    slots = {"num_envs": run.config["num_envs"]} if "num_envs" in run.config else {}
    return dict(sorted({**defaults, **run.agent, **slots}.items()))


def average(trainings: Sequence[Training], label: str, colour: str, dash: int = 0) -> Line:
    """Mean over seeds of the running mean, and its 95% bootstrap interval where there are two seeds or more.

    A seed counts from its first episode to where it got. Between episodes that end the last value stands.
    """
    start, end = min(t.x[0] for t in trainings), max(t.done for t in trainings)
    grid = np.unique(np.linspace(start, end, int(min(MAX_POINTS, max(end - start, 0) + 1))).round())
    values = np.full((len(trainings), len(grid)), np.nan)
    for row, training in zip(values, trainings, strict=True):
        index = np.searchsorted(training.x, grid, side="right") - 1
        known = (index >= 0) & (grid <= training.done)
        row[known] = running_mean(training.returns)[index[known]]
    counts = (~np.isnan(values)).sum(axis=0)
    mean, low, high = (np.full(len(grid), np.nan) for _ in range(3))
    rng = np.random.default_rng(0)
    for present in {tuple(column) for column in ~np.isnan(values.T)}:
        if any(present):
            columns = (~np.isnan(values.T) == present).all(axis=1)
            part = values[np.array(present)][:, columns]
            mean[columns], low[columns], high[columns] = stratified_bootstrap(
                rng, [part], lambda strata: strata[0].mean(axis=-2)
            )
    shown = counts > 0
    return Line(label, colour, dash, grid[shown], mean[shown], low[shown], high[shown], counts[shown])
