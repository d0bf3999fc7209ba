"""When each way to explore had learned, and whether it ever reached the far end."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling.plot import chain_length
from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.tables import agent_series, episode_limit, learned_at, number, times_table
from bootdqn.figures import Panel, save_times_to_learn


def _first_optimal_episode(row: CsvRow) -> float | None:
    return number(row["first_optimal_episode"])


def plot(rows: list[CsvRow], stem: Path) -> str:
    """A panel and two tables for every initial spread."""
    panels, parts = [], []
    for spread in dict.fromkeys(row["initial_spread"] for row in rows):
        group = [row for row in rows if row["initial_spread"] == spread]
        learned = agent_series(group, chain_length, learned_at)
        # One that dithers is not judged by its training episodes, and stops when it is judged.
        first = agent_series([r for r in group if not int(r["dithers"])], chain_length, _first_optimal_episode)
        panels.append(Panel(f"initial spread {float(spread):g}", "scrambled chain length N", learned))
        parts += [
            f"Initial spread {float(spread):g}, 100th optimal episode (dqn: evaluation without dithering).",
            "",
        ]
        parts += [times_table("N", learned), ""]
        parts += [f"Initial spread {float(spread):g}, first optimal training episode.", ""]
        parts += [times_table("N", first), ""]
    cap = episode_limit(rows)
    save_times_to_learn(stem, "The same networks, explored in four ways", panels, cap=cap)
    return "\n".join(["Medians of seeds (seeds that got there, where not all did).", "", *parts]).strip()
