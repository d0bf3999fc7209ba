"""Beam Rider with and without the division."""

from __future__ import annotations

from bootdqn.experiments.atari.run import atari_trial
from bootdqn.experiments.runner import Preset, Trial

_GAME: dict[Preset, str] = {"smoke": "breakout", "quick": "beam_rider", "paper": "beam_rider"}
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Both agents, with every seed."""
    return [
        atari_trial(_GAME[preset], agent, preset, seed)
        for agent in ("boot", "boot+")
        for seed in range(_NUM_SEEDS[preset])
    ]
