"""Experiments by name."""

from __future__ import annotations

from bootdqn.experiments import (
    atari_49,
    atari_auc,
    atari_curves,
    atari_heads,
    atari_normalization,
    atari_sharing,
    chain_heads,
    chain_one_hot,
    chain_scaling,
    chain_scrambled,
    chain_shallow,
    chain_tuning,
    deep_sea,
    planning_trees,
    regression,
    stochastic_chain,
    ucrl2_long,
)
from bootdqn.experiments.runner import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    package.EXPERIMENT.name: package.EXPERIMENT
    for package in (
        chain_scaling,
        chain_scrambled,
        chain_heads,
        chain_shallow,
        chain_one_hot,
        chain_tuning,
        deep_sea,
        stochastic_chain,
        ucrl2_long,
        regression,
        planning_trees,
        atari_curves,
        atari_heads,
        atari_sharing,
        atari_normalization,
        atari_49,
        atari_auc,
    )
}
