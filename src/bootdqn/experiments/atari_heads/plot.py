"""Learning curves by the number of heads."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.atari.tables import plot_variants
from bootdqn.experiments.runner import CsvRow


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Score and cumulative reward over frames, a line a K; a table."""
    title = "Bootstrapped DQN with K heads"
    return plot_variants(rows, stem, title, name="K", value=lambda run: run.heads)
