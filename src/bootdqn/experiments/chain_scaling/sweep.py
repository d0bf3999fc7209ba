"""Four agents on chains of growing length, and bootstrapped DQN beyond."""

from __future__ import annotations

from bootdqn.agent import AGENTS
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.training import TrainConfig

AGENT_NAMES = ("boot", "thompson", "ensemble", "dqn")
LENGTHS: dict[Preset, tuple[int, ...]] = {
    "smoke": (4,),
    "quick": (10, 20, 30),
    "paper": (10, 20, 30, 40, 50, 60, 70, 80, 90, 100),
}
_LONGER: dict[Preset, tuple[int, ...]] = {"smoke": (6, 8), "quick": (50,), "paper": (120, 140, 160, 180, 200)}
"""For bootstrapped DQN alone."""
EPISODES: dict[Preset, int] = {"smoke": 130, "quick": 500, "paper": 2000}
NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 3, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """All agents at all lengths, then the longer chains."""
    points = [(length, agent) for length in LENGTHS[preset] for agent in AGENT_NAMES]
    points += [(length, "boot") for length in _LONGER[preset]]
    return [chain_trial(preset, length, agent) for length, agent in points]


def chain_trial(preset: Preset, length: int, agent: str, *, options: str = "") -> Trial:
    """One agent on one chain, with the number of episodes and seeds of the preset.

    Args:
        preset: of the sweep.
        length: N.
        agent: its name.
        options: of the chain, as in a spec: `,scrambled`.
    """
    config = TrainConfig(
        env=f"chain:{length}{options}",
        agent_name=agent,
        agent=AGENTS[agent],
        episodes=EPISODES[preset],
        num_seeds=NUM_SEEDS[preset],
    )
    return Trial(f"chain{length}-{agent}", config)
