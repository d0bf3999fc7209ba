"""Sensitivity of bootstrapped DQN to the number of heads K and to the mask probability p (paper, appendix C)."""

from bootdqn.experiments.chain_heads.plot import plot
from bootdqn.experiments.chain_heads.sweep import sweep
from bootdqn.experiments.learning import learning_experiment

EXPERIMENT = learning_experiment(
    name="chain-heads",
    summary="how many heads, and how much data they share",
    sweep=sweep,
    plot=plot,
)
