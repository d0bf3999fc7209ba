"""A few games, with bootstrapped DQN and DQN."""

from __future__ import annotations

from bootdqn.experiments.atari.run import atari_trial
from bootdqn.experiments.runner import Preset, Trial

_GAMES: dict[Preset, tuple[str, ...]] = {
    "smoke": ("breakout",),
    "quick": ("freeway", "pong"),
    "paper": ("amidar", "beam_rider", "breakout", "freeway", "frostbite", "montezuma_revenge", "pong", "qbert"),
}
"""The paper's figure is not to be had; these are games that its text names, and two more."""
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Every seed of every agent on every game."""
    return [
        atari_trial(game, agent, preset, seed)
        for seed in range(_NUM_SEEDS[preset])
        for game in _GAMES[preset]
        for agent in ("boot", "dqn")
    ]
