"""The figure of chain-scaling for scrambled chains."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling.plot import plot_against_length
from bootdqn.experiments.runner import CsvRow


def plot(rows: list[CsvRow], stem: Path) -> str:
    """As chain-scaling, under its own title."""
    return plot_against_length(rows, stem, "Time to learn the scrambled chain")
