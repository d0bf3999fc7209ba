"""Bootstrapped DQN's own configuration, with nothing changed but who acts."""

from __future__ import annotations

from dataclasses import replace

from bootdqn.agent import AGENTS, AgentConfig
from bootdqn.experiments.chain_scaling.sweep import EPISODES
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.training import TrainConfig

_BOOT, _DQN = AGENTS["boot"], AGENTS["dqn"]
_EXPLORATION: dict[str, AgentConfig] = {
    "boot": _BOOT,
    "thompson": replace(_BOOT, acting="head_per_step"),
    "ensemble": replace(_BOOT, acting="vote"),
    "dqn": replace(
        _BOOT,
        num_heads=1,
        epsilon_start=_DQN.epsilon_start,
        epsilon_end=_DQN.epsilon_end,
        epsilon_anneal_steps=_DQN.epsilon_anneal_steps,
    ),
}
_INITIAL_SPREADS = {"wide": _BOOT.initial_spread, "narrow": 0.3}
"""The tuned one, which makes half of the heads optimistic, and one about as narrow as a network's usual biases."""
_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (20,), "paper": (10, 20, 30)}
_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 3, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """All ways to explore, on scrambled chains, from wide and from narrow initial values."""
    return [
        Trial(
            f"chain{length}-{width}-{name}",
            TrainConfig(
                env=f"chain:{length},scrambled",
                agent_name=name,
                agent=replace(agent, initial_spread=spread),
                episodes=EPISODES[preset],
                num_seeds=_SEEDS[preset],
            ),
        )
        for width, spread in _INITIAL_SPREADS.items()
        for length in _LENGTHS[preset]
        for name, agent in _EXPLORATION.items()
    ]
