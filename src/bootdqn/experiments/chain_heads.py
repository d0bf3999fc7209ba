"""Sensitivity of bootstrapped DQN to the number of heads K and to the mask probability p (paper, appendix C)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bootdqn.core.config import AGENTS
from bootdqn.experiments.chain_scaling import EPISODES, NUM_SEEDS
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.learning_tables import (
    DEFINITIONS,
    Definition,
    definition_heading,
    episode_limit,
    labelled_series,
    learned_at,
    times_table,
)
from bootdqn.experiments.shared.learning_time import learning_experiment
from bootdqn.plots.times import Panel, Series, save_times_to_learn
from bootdqn.runs.config import RunConfig

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
_FULL_SHARING = 1.0


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of every chain with every K at p = 1, then with every p below 1 at the default K."""
    boot = AGENTS["boot"]
    variants = {f"K{k}": replace(boot, num_heads=k) for k in _NUM_HEADS[preset]}
    variants |= {f"p{p:g}": replace(boot, mask_probability=p) for p in _PROBABILITIES[preset]}
    return [
        Trial(
            f"{chain.replace(':', '').replace(',', '-')}-{name}",
            RunConfig(
                loop="compiled",
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


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw one panel against K at p = 1 and one against p; return tables by both definitions of "learned"."""
    of_heads = [row for row in rows if float(row["mask_probability"]) == _FULL_SHARING]
    varied = next((row["num_heads"] for row in rows if row not in of_heads), rows[0]["num_heads"])
    of_sharing = [row for row in rows if row["num_heads"] == varied]
    panels = [
        Panel(
            "all heads learn from all data (p = 1)",
            "heads K",
            _series(of_heads, "num_heads", learned_at),
            log_x=True,
        ),
        Panel(
            f"K = {varied}",
            "probability p that a head learns from an episode",
            _series(of_sharing, "mask_probability", learned_at),
        ),
    ]
    cap = episode_limit(rows)
    save_times_to_learn(stem, "Bootstrapped DQN: how many heads, how much sharing?", panels, cap=cap)
    parts = []
    for name, when in DEFINITIONS.items():
        parts += [definition_heading(name), ""]
        parts += [times_table("K", _series(of_heads, "num_heads", when)), ""]
        parts += [times_table("p", _series(of_sharing, "mask_probability", when)), ""]
    return "\n".join(parts).strip()


def _series(rows: list[CsvRow], column: str, when: Definition) -> list[Series]:
    """Make one series per chain."""
    envs = dict.fromkeys(row["env"] for row in rows)
    groups = {env: [row for row in rows if row["env"] == env] for env in envs}
    return labelled_series(groups, lambda row: float(row[column]), when)


EXPERIMENT = learning_experiment(
    name="chain-heads",
    summary="how many heads, and how much data they share",
    sweep=sweep,
    plot=plot,
)
