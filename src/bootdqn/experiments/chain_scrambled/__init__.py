"""The control: chains with the meaning of the actions drawn for every state, so that luck cannot generalise."""

from bootdqn.experiments.chain_scrambled.plot import plot
from bootdqn.experiments.chain_scrambled.sweep import sweep
from bootdqn.experiments.learning import describe_training, measure_learning, training_cost
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="chain-scrambled",
    summary="the control: the same on chains whose actions are scrambled",
    sweep=sweep,
    run=measure_learning,
    describe=describe_training,
    cost=training_cost,
    plot=plot,
)
