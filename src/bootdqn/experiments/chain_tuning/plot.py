"""What every point of the grid scored, and which one is best for each agent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bootdqn.experiments.chain_scaling.plot import chain_length
from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.tables import episode_limit, learned_at
from bootdqn.figures import AGENT_COLOURS, save_dot_plot


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Dots for every grid point; a table of mean times, in which not having learned counts as the last episode."""
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
