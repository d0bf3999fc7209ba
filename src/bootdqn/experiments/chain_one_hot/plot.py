"""Time to learn with both features."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling.plot import chain_length
from bootdqn.experiments.tables import DEFINITIONS, episode_limit, times_by, times_table
from bootdqn.figures import COLOURS, Panel, Series, save_times_to_learn


def plot(rows: list[dict[str, str]], stem: Path) -> str:
    """A series a feature, by both definitions of "learned"."""
    of = {
        "thermometer": [row for row in rows if "one_hot" not in row["env"]],
        "one-hot": [row for row in rows if "one_hot" in row["env"]],
    }
    by_definition = {
        name: [
            Series(features, colour, times_by(group, chain_length, when))
            for (features, group), colour in zip(of.items(), COLOURS, strict=False)
        ]
        for name, when in DEFINITIONS.items()
    }
    cap = episode_limit(rows)
    panels = [Panel(name, "chain length N", series) for name, series in by_definition.items()]
    save_times_to_learn(stem, "Bootstrapped DQN with two kinds of features", panels, cap=cap)
    parts = []
    for name, series in by_definition.items():
        parts += [f"Learned: {name}. Median of seeds (seeds that learned, where not all did).", ""]
        parts += [times_table("N", series), ""]
    return "\n".join(parts).strip()
