"""The choice of hyperparameters for the chain experiments, from the same grid for every agent."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from bootdqn.core.config import AGENTS
from bootdqn.experiments.chain_scaling import AGENT_NAMES, chain_length
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.learning_tables import episode_limit, learned_at
from bootdqn.experiments.shared.learning_time import learning_experiment
from bootdqn.plots.style import AGENT_COLOURS
from bootdqn.plots.times import save_dot_plot
from bootdqn.runs.config import RunConfig

_GRID: dict[str, tuple[float, ...]] = {
    "initial_spread": (1.0, 3.0, 10.0, 30.0),
    "learning_rate": (1e-3, 3e-3),
}
_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (20,), "paper": (20, 40)}
_EPISODES: dict[Preset, int] = {"smoke": 10, "quick": 300, "paper": 1000}
_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 1, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of all agents at all points of the grid; the smoke preset has one point only."""
    points = [dict(zip(_GRID, values, strict=True)) for values in product(*_GRID.values())]
    if preset == "smoke":
        points = points[:1]
    return [
        Trial(
            "-".join([f"chain{length}", agent, *(f"{value:g}" for value in point.values())]),
            RunConfig(
                loop="compiled",
                env=f"chain:{length},scrambled",
                agent_name=agent,
                agent=replace(AGENTS[agent], **point),
                episodes=_EPISODES[preset],
                num_seeds=_SEEDS[preset],
                seed=1000,  # not the seeds that results are reported on
            ),
        )
        for length in _LENGTHS[preset]
        for agent in AGENT_NAMES
        for point in points
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw the times of every grid point; return a table of means, in which failures count as the limit."""
    cap = episode_limit(rows)
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        point = f"spread {float(row['initial_spread']):g}, rate {float(row['learning_rate']):g}"
        scores.setdefault(row["agent"], {}).setdefault(point, []).append(learned_at(row) or cap)
    points = list(next(iter(scores.values())))
    lengths = sorted({chain_length(row) for row in rows})
    chains = " and ".join(f"{length:g}" for length in lengths)
    save_dot_plot(
        stem,
        f"Episodes to learn scrambled chains of {chains}: every agent on the same grid",
        points,
        {agent: [scores[agent].get(point, []) for point in points] for agent in scores},
        colours=AGENT_COLOURS,
        xlabel=f"episodes to learn ({cap:,}: not learned)",
    )
    means = {agent: {point: np.mean(times) for point, times in scores[agent].items()} for agent in scores}
    best = {agent: min(means[agent], key=means[agent].__getitem__) for agent in scores}
    lines = [
        f"Mean episodes to learn over scrambled chains of {chains} and all seeds; a seed that did not learn "
        f"counts as {cap}. The best of each agent is marked.",
        "",
        "| grid point | " + " | ".join(scores) + " |",
        "|---|" + "---:|" * len(scores),
    ]
    for point in points:
        cells = [
            f"{means[a][point]:.0f}" + (" *" if best[a] == point else "") if point in means[a] else ""
            for a in scores
        ]
        lines.append(f"| {point} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


EXPERIMENT = learning_experiment(
    name="chain-tuning",
    summary="how the hyperparameters of the chain experiments were chosen",
    sweep=sweep,
    plot=plot,
)
