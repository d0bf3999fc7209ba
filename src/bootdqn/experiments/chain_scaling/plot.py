"""Figure, tables and fits of time to learn against length."""

from __future__ import annotations

from pathlib import Path

from bootdqn.envs.catalog import make_env
from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.tables import (
    DEFINITIONS,
    agent_series,
    definition_heading,
    describe_scaling,
    episode_limit,
    largest_solved,
    times_table,
)
from bootdqn.figures import Panel, save_times_to_learn


def chain_length(row: CsvRow) -> float:
    """N of a row's chain."""
    return make_env(row["env"]).encoding.size


def plot_against_length(rows: list[CsvRow], stem: Path, title: str) -> str:
    """Draw both definitions side by side; return tables and, for boot, the laws of growth."""
    by_definition = {name: agent_series(rows, chain_length, when) for name, when in DEFINITIONS.items()}
    panels = [
        Panel(name, "chain length N", series, bound=lambda n: 99 + 2.0 ** (n - 11), bound_label="99 + 2^(N-11)")
        for name, series in by_definition.items()
    ]
    cap = episode_limit(rows)
    save_times_to_learn(stem, title, panels, cap=cap)
    parts = []
    for name, series in by_definition.items():
        parts += [definition_heading(name), "", times_table("N", series), ""]
        solved = ", ".join(f"{s.label} {largest_solved(s)}" for s in series)
        parts += [f"Largest N learned by every seed: {solved}.", ""]
        parts += [f"boot: {describe_scaling(s.times)}" for s in series if s.label == "boot"] + [""]
    return "\n".join(parts).strip()


def plot(rows: list[CsvRow], stem: Path) -> str:
    """The paper's figure, with both definitions of "learned"."""
    return plot_against_length(rows, stem, "Time to learn the chain")
