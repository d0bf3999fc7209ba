"""The figure of chain-scaling for scrambled chains."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling.plot import plot_against_length


def plot(rows: list[dict[str, str]], stem: Path) -> str:
    """As chain-scaling, under its own title."""
    return plot_against_length(rows, stem, "Time to learn the scrambled chain")
