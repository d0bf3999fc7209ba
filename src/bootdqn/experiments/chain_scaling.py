"""Time to learn against the length of the chain (paper, section 5.1)."""

from __future__ import annotations

from pathlib import Path

from bootdqn.core.config import AGENTS
from bootdqn.envs.registry import make_env
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.learning_tables import (
    DEFINITIONS,
    agent_series,
    definition_heading,
    describe_scaling,
    episode_limit,
    largest_solved,
    times_table,
)
from bootdqn.experiments.shared.learning_time import learning_experiment
from bootdqn.plots.times import Panel, save_times_to_learn
from bootdqn.runs.config import RunConfig

AGENT_NAMES = ("boot", "thompson", "ensemble", "dqn")
LENGTHS: dict[Preset, tuple[int, ...]] = {
    "smoke": (4,),
    "quick": (10, 20, 30),
    "paper": (10, 20, 30, 40, 50, 60, 70, 80, 90, 100),
}
_LONGER: dict[Preset, tuple[int, ...]] = {"smoke": (6, 8), "quick": (50,), "paper": (120, 140, 160, 180, 200)}
"""Longer chains, for bootstrapped DQN alone."""
EPISODES: dict[Preset, int] = {"smoke": 130, "quick": 500, "paper": 2000}
NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 3, "paper": 3}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of all agents at all lengths, then those of bootstrapped DQN on longer chains."""
    points = [(length, agent) for length in LENGTHS[preset] for agent in AGENT_NAMES]
    points += [(length, "boot") for length in _LONGER[preset]]
    return [chain_trial(preset, length, agent) for length, agent in points]


def chain_trial(preset: Preset, length: int, agent: str, *, options: str = "") -> Trial:
    """Make the trial of one agent on one chain, with the number of episodes and seeds of the preset.

    Args:
        preset: the preset of the sweep.
        length: the length N of the chain.
        agent: the name of the agent.
        options: further options of the chain, as in `,scrambled`.
    """
    config = RunConfig(
        loop="compiled",
        env=f"chain:{length}{options}",
        agent_name=agent,
        agent=AGENTS[agent],
        episodes=EPISODES[preset],
        num_seeds=NUM_SEEDS[preset],
    )
    return Trial(f"chain{length}-{agent}", config)


def chain_length(row: CsvRow) -> float:
    """Return the length N of the chain that a row is about."""
    return make_env(row["env"]).encoding.size


def plot_against_length(rows: list[CsvRow], stem: Path, title: str) -> str:
    """Draw times by both definitions side by side; return tables and, for boot, the laws of growth."""
    by_definition = {name: agent_series(rows, chain_length, when) for name, when in DEFINITIONS.items()}
    panels = [
        Panel(name, "chain length N", series, bound=lambda n: 99 + 2.0 ** (n - 11), bound_label="99 + 2^(N-11)")
        for name, series in by_definition.items()
    ]
    cap = episode_limit(rows)
    save_times_to_learn(stem, title, panels, cap=cap)
    parts = []
    for name, series in by_definition.items():
        parts += [definition_heading(name), "", times_table("N", series), ""]
        solved = ", ".join(f"{s.label} {largest_solved(s)}" for s in series)
        parts += [f"Largest N learned by every seed: {solved}.", ""]
        parts += [f"boot: {describe_scaling(s.times)}" for s in series if s.label == "boot"] + [""]
    return "\n".join(parts).strip()


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw the paper's figure, with both definitions of "learned"."""
    return plot_against_length(rows, stem, "Time to learn the chain")


EXPERIMENT = learning_experiment(
    name="chain-scaling",
    summary="time to learn against the length of the chain: four agents, and boot to 200 states",
    sweep=sweep,
    plot=plot,
)
