"""bsuite's sizes, one seed each as there, for bootstrapped DQN without a prior."""

from __future__ import annotations

from bootdqn.agent import AGENTS
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.training import TrainConfig

_SIZES: dict[Preset, tuple[int, ...]] = {"smoke": (3, 4), "quick": (6, 8, 10), "paper": tuple(range(10, 51, 2))}
_EPISODES: dict[Preset, int] = {"smoke": 50, "quick": 1000, "paper": 10_000}


def sweep(preset: Preset) -> list[Trial]:
    """Every size in both variants, the small ones first."""
    return [
        Trial(
            f"size{size}-{name}",
            TrainConfig(
                env=f"deep_sea:{size}{options}",
                agent_name="boot",
                agent=AGENTS["boot"],
                episodes=_EPISODES[preset],
            ),
        )
        for size in _SIZES[preset]
        for name, options in {"deterministic": "", "stochastic": ",stochastic"}.items()
    ]
