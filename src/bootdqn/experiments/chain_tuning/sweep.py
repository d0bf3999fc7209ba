"""The grid: every agent gets the same values to choose from, on scrambled chains of two lengths."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from bootdqn.agent import AGENTS
from bootdqn.experiments.chain_scaling.sweep import AGENT_NAMES
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.training import TrainConfig

_GRID: dict[str, tuple[float, ...]] = {
    "initial_spread": (1.0, 3.0, 10.0, 30.0),
    "learning_rate": (1e-3, 3e-3),
}
_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (20,), "paper": (20, 40)}
_EPISODES: dict[Preset, int] = {"smoke": 10, "quick": 300, "paper": 1000}
_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 1, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """All values of the grid for all agents; in the smoke preset, one of them."""
    points = [dict(zip(_GRID, values, strict=True)) for values in product(*_GRID.values())]
    if preset == "smoke":
        points = points[:1]
    return [
        Trial(
            "-".join([f"chain{length}", agent, *(f"{value:g}" for value in point.values())]),
            TrainConfig(
                env=f"chain:{length},scrambled",
                agent_name=agent,
                agent=replace(AGENTS[agent], **point),
                episodes=_EPISODES[preset],
                num_seeds=_SEEDS[preset],
                seed=1000,  # not the seeds that results are reported on
            ),
        )
        for length in _LENGTHS[preset]
        for agent in AGENT_NAMES
        for point in points
    ]
