"""One-hot against thermometer features (paper, appendix C)."""

from __future__ import annotations

from pathlib import Path

from bootdqn.core.config import AGENTS
from bootdqn.experiments.chain_scaling import EPISODES, chain_length
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.learning_tables import (
    DEFINITIONS,
    definition_heading,
    episode_limit,
    labelled_series,
    times_table,
)
from bootdqn.experiments.shared.learning_time import learning_experiment
from bootdqn.plots.times import Panel, save_times_to_learn
from bootdqn.runs.config import RunConfig

_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (10, 20), "paper": (10, 30, 50)}
_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 3, "paper": 10}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of bootstrapped DQN with both kinds of features at all lengths."""
    return [
        Trial(
            f"chain{length}-{features}",
            RunConfig(
                loop="compiled",
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


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw a series per kind of features, by both definitions of "learned"; return tables of them."""
    groups = {
        "thermometer": [row for row in rows if "one_hot" not in row["env"]],
        "one-hot": [row for row in rows if "one_hot" in row["env"]],
    }
    by_definition = {name: labelled_series(groups, chain_length, when) for name, when in DEFINITIONS.items()}
    panels = [Panel(name, "chain length N", series) for name, series in by_definition.items()]
    save_times_to_learn(stem, "Bootstrapped DQN with two kinds of features", panels, cap=episode_limit(rows))
    parts = []
    for name, series in by_definition.items():
        parts += [definition_heading(name), "", times_table("N", series), ""]
    return "\n".join(parts).strip()


EXPERIMENT = learning_experiment(
    name="chain-one-hot",
    summary="one-hot against thermometer features",
    sweep=sweep,
    plot=plot,
)
