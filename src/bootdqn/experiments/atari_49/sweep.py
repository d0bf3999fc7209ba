"""Every game with bootstrapped DQN and DQN."""

from __future__ import annotations

from bootdqn.envs.atari import GAMES
from bootdqn.experiments.atari.run import atari_trial
from bootdqn.experiments.runner import Preset, Trial

_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """The first seed of every game before the second of any."""
    games = ("breakout",) if preset == "smoke" else tuple(GAMES)
    return [
        atari_trial(game, agent, preset, seed)
        for seed in range(_NUM_SEEDS[preset])
        for game in games
        for agent in ("boot", "dqn")
    ]
