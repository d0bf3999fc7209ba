"""Bootstrapped DQN's own configuration, with nothing changed but who acts."""

from __future__ import annotations

from dataclasses import replace

from bootdqn.agent import AGENTS
from bootdqn.experiments.chain_scaling.sweep import AGENT_NAMES, EPISODES, NUM_SEEDS
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.training import TrainConfig

_BOOT = AGENTS["boot"]
_INITIAL_SPREADS = {"wide": _BOOT.initial_spread, "narrow": 0.3}
"""The tuned one, which makes half of the heads optimistic, and one about as narrow as a network's usual biases."""
_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (20,), "paper": (10, 20, 30)}


def sweep(preset: Preset) -> list[Trial]:
    """All ways to explore, on scrambled chains, from wide and from narrow initial values."""
    return [
        Trial(
            f"chain{length}-{width}-{name}",
            TrainConfig(
                env=f"chain:{length},scrambled",
                agent_name=name,
                # What was tuned for each is put back to what boot has.
                agent=replace(AGENTS[name], initial_spread=spread, learning_rate=_BOOT.learning_rate),
                episodes=EPISODES[preset],
                num_seeds=NUM_SEEDS[preset],
            ),
        )
        for width, spread in _INITIAL_SPREADS.items()
        for length in _LENGTHS[preset]
        for name in AGENT_NAMES
    ]
