"""bsuite's deterministic DeepSea, and larger seas, with randomised priors in place of wide output biases."""

from __future__ import annotations

from bootdqn.experiments.deep_sea import SIZES, plot, run, size_trial
from bootdqn.experiments.engine.experiment import Preset, Trial
from bootdqn.experiments.shared.learning_time import learning_experiment

_MORE_SEEDS_AT: dict[Preset, tuple[int, ...]] = {"smoke": (), "quick": (10,), "paper": (20, 30, 40, 50)}
"""The deterministic sizes that have five seeds, where bsuite has one."""
_LARGER: dict[Preset, tuple[int, ...]] = {"smoke": (), "quick": (12,), "paper": (60, 80, 100)}
"""The deterministic sizes beyond bsuite's."""


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of bsuite's sizes with one seed, more seeds at some of them, and those of larger sizes."""
    points = [
        *((size, 0) for size in SIZES[preset]),
        *((size, seed) for size in _MORE_SEEDS_AT[preset] for seed in range(1, 5)),
        *((size, 0) for size in _LARGER[preset]),
    ]
    return [size_trial(preset, size, "boot-prior", seed=seed) for size, seed in points]


EXPERIMENT = learning_experiment(
    name="deep-sea-prior",
    summary="bsuite's DeepSea, and sizes to 100, by the agent with randomised priors",
    sweep=sweep,
    plot=plot,
    run=run,
)
