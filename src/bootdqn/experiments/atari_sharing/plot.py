"""Learning curves by the share of the data that a head learns from."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.atari.tables import plot_variants
from bootdqn.experiments.runner import CsvRow


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Score and cumulative reward over frames, a line a p, and dqn; a table."""
    title = "Bootstrapped DQN whose heads learn from an episode with probability p"
    return plot_variants(rows, stem, title, name="p", value=lambda run: run.mask_probability)
