"""bsuite's DeepSea, deterministic, with randomised priors in place of wide output biases."""

from __future__ import annotations

from bootdqn.experiments.deep_sea import SIZES, plot, run, size_trial
from bootdqn.experiments.engine.experiment import Preset, Trial
from bootdqn.experiments.shared.learning_time import learning_experiment

_MORE_SEEDS_AT: dict[Preset, tuple[int, ...]] = {"smoke": (), "quick": (10,), "paper": (20, 30)}
"""The sizes that have five seeds, where bsuite has one."""


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of every size with one seed, and then those of four more seeds at some sizes."""
    more = [(size, seed) for size in _MORE_SEEDS_AT[preset] for seed in range(1, 5)]
    pairs = [*((size, 0) for size in SIZES[preset]), *more]
    return [size_trial(preset, size, "boot-prior", seed=seed) for size, seed in pairs]


EXPERIMENT = learning_experiment(
    name="deep-sea-prior",
    summary="bsuite's DeepSea by the agent with randomised priors",
    sweep=sweep,
    plot=plot,
    run=run,
)
