"""Breakout with several p, and with DQN."""

from __future__ import annotations

from bootdqn.experiments.atari.run import atari_trial
from bootdqn.experiments.runner import Preset, Trial

_PROBABILITIES: dict[Preset, tuple[float, ...]] = {
    "smoke": (0.5,),
    "quick": (0.5, 1.0),
    "paper": (0.1, 0.25, 0.5, 0.75, 1.0),
}
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Every p, then DQN, with every seed."""
    seeds = range(_NUM_SEEDS[preset])
    boot = [
        atari_trial("breakout", "boot", preset, seed, mask_probability=p)
        for p in _PROBABILITIES[preset]
        for seed in seeds
    ]
    return [*boot, *(atari_trial("breakout", "dqn", preset, seed) for seed in seeds)]
