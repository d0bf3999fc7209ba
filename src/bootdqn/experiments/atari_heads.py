"""Bootstrapped DQN on Breakout with different numbers of heads (paper, section 6.1)."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.atari_runs import atari_experiment, atari_trial
from bootdqn.experiments.shared.atari_tables import plot_variants

_NUM_HEADS: dict[Preset, tuple[int, ...]] = {"smoke": (1, 2), "quick": (1, 5, 10), "paper": (1, 2, 5, 10, 20)}
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of bootstrapped DQN on Breakout with every number of heads and every seed."""
    return [
        atari_trial("breakout", "boot", preset, seed, num_heads=num_heads)
        for num_heads in _NUM_HEADS[preset]
        for seed in range(_NUM_SEEDS[preset])
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw scores and cumulative rewards over frames, with a line per K; return a table."""
    title = "Bootstrapped DQN with K heads"
    return plot_variants(rows, stem, title, name="K", value=lambda run: run.heads)


EXPERIMENT = atari_experiment(
    name="atari-heads",
    summary="how many heads, on Breakout",
    sweep=sweep,
    plot=plot,
)
