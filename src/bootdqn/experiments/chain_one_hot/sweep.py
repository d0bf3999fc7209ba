"""Bootstrapped DQN with both features, ten seeds."""

from __future__ import annotations

from bootdqn.agent import AGENTS
from bootdqn.experiments.chain_scaling.sweep import EPISODES
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.training import TrainConfig

_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (10, 20), "paper": (10, 30, 50)}
_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 3, "paper": 10}


def sweep(preset: Preset) -> list[Trial]:
    """Both features at all lengths."""
    return [
        Trial(
            f"chain{length}-{features}",
            TrainConfig(
                env=f"chain:{length}{options}",
                agent_name="boot",
                agent=AGENTS["boot"],
                episodes=EPISODES[preset],
                num_seeds=_SEEDS[preset],
            ),
        )
        for length in _LENGTHS[preset]
        for features, options in {"thermometer": "", "one_hot": ",features=one_hot"}.items()
    ]
