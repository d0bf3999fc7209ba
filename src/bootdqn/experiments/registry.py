"""All experiments by name, in the order of `bootdqn list`."""

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
    deep_sea_prior,
    gym_exploration,
    planning_trees,
    regression,
    stochastic_chain,
    ucrl2_long,
)
from bootdqn.experiments.engine.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        chain_scaling,
        chain_scrambled,
        chain_heads,
        chain_shallow,
        chain_one_hot,
        chain_tuning,
        deep_sea,
        deep_sea_prior,
        gym_exploration,
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
