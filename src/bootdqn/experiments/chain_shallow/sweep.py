"""Bootstrapped DQN's own configuration, with nothing changed but who acts."""

from __future__ import annotations

from dataclasses import replace

from bootdqn.agent import AGENTS, AgentConfig
from bootdqn.experiments.chain_scaling.sweep import EPISODES, NUM_SEEDS
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
_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (20, 30), "paper": (20, 40, 60)}


def sweep(preset: Preset) -> list[Trial]:
    """All ways to explore, on plain and on scrambled chains."""
    return [
        Trial(
            f"chain{length}-{kind}-{name}",
            TrainConfig(
                env=f"chain:{length}{options}",
                agent_name=name,
                agent=agent,
                episodes=EPISODES[preset],
                num_seeds=NUM_SEEDS[preset],
            ),
        )
        for kind, options in {"plain": "", "scrambled": ",scrambled"}.items()
        for length in _LENGTHS[preset]
        for name, agent in _EXPLORATION.items()
    ]
