"""Sensitivity of bootstrapped DQN to the number of heads K and to the mask probability p (paper, appendix C)."""

from bootdqn.experiments.chain_heads.plot import plot
from bootdqn.experiments.chain_heads.sweep import sweep
from bootdqn.experiments.learning import describe_training, measure_learning, training_cost
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="chain-heads",
    summary="how many heads, and how much data they share",
    sweep=sweep,
    run=measure_learning,
    describe=describe_training,
    cost=training_cost,
    plot=plot,
)
