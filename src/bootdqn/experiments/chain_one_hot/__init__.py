"""One-hot against thermometer features (paper, appendix C)."""

from bootdqn.experiments.chain_one_hot.plot import plot
from bootdqn.experiments.chain_one_hot.sweep import sweep
from bootdqn.experiments.learning import describe_training, measure_learning, training_cost
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="chain-one-hot",
    summary="one-hot against thermometer features",
    sweep=sweep,
    run=measure_learning,
    describe=describe_training,
    cost=training_cost,
    plot=plot,
)
