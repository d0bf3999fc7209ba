"""Bootstrapped DQN on Breakout with different mask probabilities, and DQN (paper, section 6.1)."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.atari_runs import atari_experiment, atari_trial
from bootdqn.experiments.shared.atari_tables import plot_variants

_PROBABILITIES: dict[Preset, tuple[float, ...]] = {
    "smoke": (0.5,),
    "quick": (0.5, 1.0),
    "paper": (0.1, 0.25, 0.5, 0.75, 1.0),
}
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials on Breakout with every p, then those of DQN, with every seed."""
    seeds = range(_NUM_SEEDS[preset])
    boot = [
        atari_trial("breakout", "boot", preset, seed, mask_probability=p)
        for p in _PROBABILITIES[preset]
        for seed in seeds
    ]
    return [*boot, *(atari_trial("breakout", "dqn", preset, seed) for seed in seeds)]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw scores and cumulative rewards over frames, with a line per p and one for dqn; return a table."""
    title = "Bootstrapped DQN whose heads learn from an episode with probability p"
    return plot_variants(rows, stem, title, name="p", value=lambda run: run.mask_probability)


EXPERIMENT = atari_experiment(
    name="atari-sharing",
    summary="how much data heads share, on Breakout",
    sweep=sweep,
    plot=plot,
)
