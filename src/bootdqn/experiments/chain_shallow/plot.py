"""How often each way to explore ever reached the far end, and when it had learned."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling.plot import chain_length
from bootdqn.experiments.tables import CsvRow, agent_series, learned_at, times_table
from bootdqn.figures import Panel, save_times_to_learn


def _first_optimal_episode(row: CsvRow) -> float | None:
    text = row["first_optimal_episode"]
    return float(text) if text else None


def plot(rows: list[dict[str, str]], stem: Path) -> str:
    """First optimal episode beside time to learn."""
    first = agent_series(rows, chain_length, _first_optimal_episode)
    learned = agent_series(rows, chain_length, learned_at)
    panels = [
        Panel("first optimal training episode", "chain length N", first),
        Panel("100th optimal episode", "chain length N", learned),
    ]
    cap = max(int(row["episodes"]) for row in rows)
    save_times_to_learn(stem, "The same networks, explored in four ways", panels, cap=cap)
    return "\n".join(
        [
            "First optimal training episode. Median of seeds (seeds that had one, where not all did).",
            "",
            times_table("N", first),
            "",
            "Learned: 100th optimal episode (dqn: evaluation without dithering).",
            "",
            times_table("N", learned),
        ]
    )
