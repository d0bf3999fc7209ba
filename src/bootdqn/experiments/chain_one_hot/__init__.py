"""One-hot against thermometer features (paper, appendix C)."""

from bootdqn.experiments.chain_one_hot.plot import plot
from bootdqn.experiments.chain_one_hot.sweep import sweep
from bootdqn.experiments.learning import learning_experiment

EXPERIMENT = learning_experiment(
    name="chain-one-hot",
    summary="one-hot against thermometer features",
    sweep=sweep,
    plot=plot,
)
