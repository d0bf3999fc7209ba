"""14 games with DQN, Boot-DQN and Boot-DQN+, for a tenth of the other experiments' time."""

from __future__ import annotations

from bootdqn.experiments.atari.paper import EPOCH_FRAMES
from bootdqn.experiments.atari.run import ACTION_REPEAT, atari_trial
from bootdqn.experiments.runner import Preset, Trial

GAMES = (
    *("alien", "asteroids", "bank_heist", "beam_rider", "bowling", "breakout", "enduro", "freeway", "frostbite"),
    *("montezuma_revenge", "pong", "qbert", "seaquest", "space_invaders"),
)
_NUM_EPOCHS = 100
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Every agent on every game, with every seed; in the paper's preset an evaluation every epoch."""
    games = ("breakout",) if preset == "smoke" else GAMES
    epoch = EPOCH_FRAMES // ACTION_REPEAT
    schedule = {"steps": _NUM_EPOCHS * epoch, "evaluate_every_steps": epoch} if preset == "paper" else {}
    return [
        atari_trial(game, agent, preset, seed, schedule=schedule)
        for seed in range(_NUM_SEEDS[preset])
        for game in games
        for agent in ("dqn", "boot", "boot+")
    ]
