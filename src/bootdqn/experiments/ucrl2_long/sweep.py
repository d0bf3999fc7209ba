"""Optimistic agents, and posterior sampling beside them, over hundreds of thousands of episodes."""

from __future__ import annotations

from bootdqn.experiments.runner import Preset, Trial
from bootdqn.experiments.ucrl2_long.aliased import AliasedUCRL2
from bootdqn.tabular.agents import PSRL, UCBVI, UCRL2, TabularAgent
from bootdqn.training import TrainConfig

_AGENTS: dict[str, tuple[str, TabularAgent]] = {
    "ucrl2": ("ucrl2", UCRL2()),
    "ucrl2-wide": ("ucrl2", UCRL2(reward_constant=3.5, transition_constant=14.0)),
    "ucrl2-aliased": ("ucrl2", AliasedUCRL2()),
    "ucbvi": ("ucbvi", UCBVI()),
    "psrl": ("psrl", PSRL()),
}
"""UCRL2 with the constants of TabulaRL, with those of its own paper, and with a slip of TabulaRL."""
_EPISODES: dict[Preset, int] = {"smoke": 200, "quick": 20_000, "paper": 300_000}
_SEEDS: dict[Preset, int] = {"smoke": 2, "quick": 4, "paper": 10}


def sweep(preset: Preset) -> list[Trial]:
    """Every agent on the noisy chain."""
    return [
        Trial(
            label,
            TrainConfig(
                env="stochastic_chain",
                agent_name=name,
                agent=agent,
                episodes=_EPISODES[preset],
                num_seeds=_SEEDS[preset],
            ),
        )
        for label, (name, agent) in _AGENTS.items()
    ]
