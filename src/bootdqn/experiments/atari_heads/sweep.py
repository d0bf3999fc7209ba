"""Breakout with several K."""

from __future__ import annotations

from bootdqn.experiments.atari.run import atari_trial
from bootdqn.experiments.runner import Preset, Trial

_NUM_HEADS: dict[Preset, tuple[int, ...]] = {"smoke": (1, 2), "quick": (1, 5, 10), "paper": (1, 2, 5, 10, 20)}
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Every K, with every seed."""
    return [
        atari_trial("breakout", "boot", preset, seed, num_heads=num_heads)
        for num_heads in _NUM_HEADS[preset]
        for seed in range(_NUM_SEEDS[preset])
    ]
