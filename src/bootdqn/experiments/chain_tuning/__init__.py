"""How the hyperparameters of the chain experiments were chosen: the same grid for every agent."""

from bootdqn.experiments.chain_tuning.plot import plot
from bootdqn.experiments.chain_tuning.sweep import sweep
from bootdqn.experiments.learning import describe_training, measure_learning, training_cost
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="chain-tuning",
    summary="how the hyperparameters of the chain experiments were chosen",
    sweep=sweep,
    run=measure_learning,
    describe=describe_training,
    cost=training_cost,
    plot=plot,
)
