"""A control: chains in which the meaning of the actions is drawn per state, so that luck cannot generalise."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.chain_scaling import AGENT_NAMES, LENGTHS, chain_trial, plot_against_length
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.learning_time import learning_experiment


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of all agents at all lengths of chain-scaling."""
    return [
        chain_trial(preset, length, agent, options=",scrambled")
        for length in LENGTHS[preset]
        for agent in AGENT_NAMES
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw the figure of chain-scaling for scrambled chains."""
    return plot_against_length(rows, stem, "Time to learn the scrambled chain")


EXPERIMENT = learning_experiment(
    name="chain-scrambled",
    summary="the control: the same on chains whose actions are scrambled",
    sweep=sweep,
    plot=plot,
)
