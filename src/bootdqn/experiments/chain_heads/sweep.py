"""K at p = 1, then p at the default K, on plain and scrambled chains."""

from __future__ import annotations

from dataclasses import replace

from bootdqn.agent import AGENTS
from bootdqn.experiments.chain_scaling.sweep import EPISODES, NUM_SEEDS
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.training import TrainConfig

_NUM_HEADS: dict[Preset, tuple[int, ...]] = {
    "smoke": (1, 10),
    "quick": (1, 10, 20),
    "paper": (1, 2, 5, 10, 20, 40),
}
_PROBABILITIES: dict[Preset, tuple[float, ...]] = {
    "smoke": (0.5,),
    "quick": (0.1, 0.5),
    "paper": (0.1, 0.25, 0.5, 0.75),
}
_CHAINS: dict[Preset, tuple[str, ...]] = {
    "smoke": ("chain:4",),
    "quick": ("chain:20,scrambled",),
    "paper": ("chain:50", "chain:100", "chain:30,scrambled"),
}


def sweep(preset: Preset) -> list[Trial]:
    """Every chain with every K, then with every p below 1 (p = 1 is among the former)."""
    boot = AGENTS["boot"]
    variants = {f"K{k}": replace(boot, num_heads=k) for k in _NUM_HEADS[preset]}
    variants |= {f"p{p:g}": replace(boot, mask_probability=p) for p in _PROBABILITIES[preset]}
    return [
        Trial(
            f"{chain.replace(':', '').replace(',', '-')}-{name}",
            TrainConfig(
                env=chain,
                agent_name="boot",
                agent=agent,
                episodes=EPISODES[preset],
                num_seeds=NUM_SEEDS[preset],
            ),
        )
        for chain in _CHAINS[preset]
        for name, agent in variants.items()
    ]
