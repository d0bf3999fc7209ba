"""bsuite's DeepSea, and larger ones, with randomised priors in place of wide output biases."""

from __future__ import annotations

from bootdqn.experiments.deep_sea import SIZES, plot, run, size_trial
from bootdqn.experiments.engine.experiment import Preset, Trial
from bootdqn.experiments.shared.learning_time import learning_experiment

_LARGER: dict[Preset, tuple[int, ...]] = {"smoke": (), "quick": (), "paper": (60, 80, 100)}
"""Sizes beyond bsuite's, deterministic."""
_MORE_SEEDS_AT: dict[Preset, tuple[int, ...]] = {"smoke": (), "quick": (10,), "paper": (20, 30, 40, 50)}
"""The sizes that have five seeds, where bsuite has one."""


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of every size in both variants with one seed, of more seeds at some, and of larger sizes."""
    more = [(size, seed) for size in _MORE_SEEDS_AT[preset] for seed in range(1, 5)]
    points = [
        *((size, 0, "") for size in SIZES[preset]),
        *((*pair, "") for pair in more),
        *((size, 0, ",stochastic") for size in SIZES[preset]),
        *((size, 0, "") for size in _LARGER[preset]),
        *((*pair, ",stochastic") for pair in more),
    ]
    return [size_trial(preset, size, "boot-prior", options=options, seed=seed) for size, seed, options in points]


EXPERIMENT = learning_experiment(
    name="deep-sea-prior",
    summary="bsuite's DeepSea, and larger ones, by the agent with randomised priors",
    sweep=sweep,
    plot=plot,
    run=run,
)
