"""How the hyperparameters of the chain experiments were chosen: the same grid for every agent."""

from bootdqn.experiments.chain_tuning.plot import plot
from bootdqn.experiments.chain_tuning.sweep import sweep
from bootdqn.experiments.learning import learning_experiment

EXPERIMENT = learning_experiment(
    name="chain-tuning",
    summary="how the hyperparameters of the chain experiments were chosen",
    sweep=sweep,
    plot=plot,
)
