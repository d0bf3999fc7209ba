"""When each way to explore had learned, and whether it ever reached the far end."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling.plot import chain_length
from bootdqn.experiments.tables import CsvRow, agent_series, learned_at, times_table
from bootdqn.figures import Panel, save_times_to_learn


def _first_optimal_episode(row: CsvRow) -> float | None:
    text = row["first_optimal_episode"]
    return float(text) if text else None


def plot(rows: list[dict[str, str]], stem: Path) -> str:
    """A panel and two tables for plain chains, and the same for scrambled ones."""
    panels, parts = [], []
    for kind, scrambled in {"chain": False, "scrambled chain": True}.items():
        group = [row for row in rows if ("scrambled" in row["env"]) == scrambled]
        learned = agent_series(group, chain_length, learned_at)
        first = agent_series(group, chain_length, _first_optimal_episode)
        panels.append(Panel(kind, "chain length N", learned))
        parts += [f"{kind.capitalize()}: 100th optimal episode (dqn: evaluation without dithering).", ""]
        parts += [times_table("N", learned), ""]
        parts += [f"{kind.capitalize()}: first optimal training episode.", "", times_table("N", first), ""]
    cap = max(int(row["episodes"]) for row in rows)
    save_times_to_learn(stem, "The same networks, explored in four ways", panels, cap=cap)
    return "\n".join(["Medians of seeds (seeds that got there, where not all did).", "", *parts]).strip()
