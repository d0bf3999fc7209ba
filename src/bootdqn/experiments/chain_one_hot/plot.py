"""Time to learn with both features."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling.plot import chain_length
from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.tables import DEFINITIONS, definition_heading, episode_limit, labelled_series, times_table
from bootdqn.figures import Panel, save_times_to_learn


def plot(rows: list[CsvRow], stem: Path) -> str:
    """A series a feature, by both definitions of "learned"."""
    groups = {
        "thermometer": [row for row in rows if "one_hot" not in row["env"]],
        "one-hot": [row for row in rows if "one_hot" in row["env"]],
    }
    by_definition = {name: labelled_series(groups, chain_length, when) for name, when in DEFINITIONS.items()}
    panels = [Panel(name, "chain length N", series) for name, series in by_definition.items()]
    save_times_to_learn(stem, "Bootstrapped DQN with two kinds of features", panels, cap=episode_limit(rows))
    parts = []
    for name, series in by_definition.items():
        parts += [definition_heading(name), "", times_table("N", series), ""]
    return "\n".join(parts).strip()
