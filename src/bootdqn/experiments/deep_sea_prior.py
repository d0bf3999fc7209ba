"""bsuite's DeepSea with randomised priors in place of wide output biases."""

from __future__ import annotations

from bootdqn.experiments.deep_sea import plot, run, sweep_agent
from bootdqn.experiments.engine.experiment import Preset, Trial
from bootdqn.experiments.shared.learning_time import learning_experiment


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of deep-sea for the agent with priors."""
    return sweep_agent(preset, "boot-prior")


EXPERIMENT = learning_experiment(
    name="deep-sea-prior",
    summary="bsuite's DeepSea by the agent with randomised priors",
    sweep=sweep,
    plot=plot,
    run=run,
)
