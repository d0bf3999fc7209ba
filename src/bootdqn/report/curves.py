"""Learning curves: one chart per environment, one line per configuration, averaged over seeds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bootdqn.analysis.stats import stratified_bootstrap
from bootdqn.core.config import AgentConfig
from bootdqn.plots.style import AGENT_COLOURS, COLOURS, WINDOW, running_mean
from bootdqn.report.charts import Chart, ChartLine
from bootdqn.report.records import RunRecord, SeedCurve

MAX_POINTS = 200
"""The largest number of points of a line."""
_DEFAULTS: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(AgentConfig())))


def make_charts(runs: Sequence[RunRecord]) -> list[Chart]:
    """One chart per environment, with all of its runs that have finished an episode."""
    by_env: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        if run.curves:
            by_env.setdefault((run.env, run.unit), []).append(run)
    charts = []
    for (env, unit), members in by_env.items():
        lines: list[ChartLine] = []
        for label, agent, curves in _groups(members):
            colour = AGENT_COLOURS.get(agent, COLOURS[0])
            dash = sum(line.colour == colour for line in lines)
            lines.append(average(curves, label, colour, dash))
        xlabel = "episode" if unit == "episodes" else "environment step"
        charts.append(Chart(env, xlabel, f"return, mean of {WINDOW} episodes", lines))
    return charts


def _groups(runs: Sequence[RunRecord]) -> list[tuple[str, str, list[SeedCurve]]]:
    """Label, agent and seeds of every configuration; labels name what differs between those of one agent."""
    groups: dict[str, tuple[RunRecord, dict[int, SeedCurve]]] = {}
    for run in runs:
        _, curves = groups.setdefault(json.dumps([run.agent_name, configuration(run)]), (run, {}))
        for curve in run.curves:  # of a seed that was trained twice, the longer curve counts
            other = curves.get(curve.seed)
            curves[curve.seed] = curve if other is None or curve.done > other.done else other
    found = []
    for first, curves in groups.values():
        same = [configuration(other) for other, _ in groups.values() if other.agent_name == first.agent_name]
        own = configuration(first)
        differing = [name for name in own if any(other.get(name) != own[name] for other in same)]
        label = ", ".join(f"{name.replace('_', ' ')} {json.dumps(own[name])}" for name in differing)
        name = f"{first.agent_name} ({label})" if label else first.agent_name
        found.append((name, first.agent_name, [curves[seed] for seed in sorted(curves)]))
    return sorted(found, key=lambda group: (group[1], -len(group[2]), group[0]))


def configuration(run: RunRecord) -> dict[str, Any]:
    """The settings that two runs on one environment must share to count as seeds of one configuration."""
    # A setting that did not exist yet when the run was made has its default.
    defaults = _DEFAULTS if "num_heads" in run.agent else {}
    slots = {"num_envs": run.config["num_envs"]} if "num_envs" in run.config else {}
    return dict(sorted({**defaults, **run.agent, **slots}.items()))


def average(curves: Sequence[SeedCurve], label: str, colour: str, dash: int = 0) -> ChartLine:
    """Mean over seeds of their running means, with a 95% bootstrap interval if there are at least two seeds.

    A seed contributes from the end of its first episode up to where its training has got. Between the ends of two
    episodes it contributes the value of the earlier one.
    """
    start, end = min(curve.x[0] for curve in curves), max(curve.done for curve in curves)
    grid = np.unique(np.linspace(start, end, int(min(MAX_POINTS, max(end - start, 0) + 1))).round())
    values = np.full((len(curves), len(grid)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        index = np.searchsorted(curve.x, grid, side="right") - 1
        known = (index >= 0) & (grid <= curve.done)
        row[known] = running_mean(curve.returns)[index[known]]
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
    return ChartLine(label, colour, dash, grid[shown], mean[shown], low[shown], high[shown], counts[shown])
