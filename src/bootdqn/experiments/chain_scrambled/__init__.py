"""The control: chains with the meaning of the actions drawn for every state, so that luck cannot generalise."""

from bootdqn.experiments.chain_scrambled.plot import plot
from bootdqn.experiments.chain_scrambled.sweep import sweep
from bootdqn.experiments.learning import learning_experiment

EXPERIMENT = learning_experiment(
    name="chain-scrambled",
    summary="the control: the same on chains whose actions are scrambled",
    sweep=sweep,
    plot=plot,
)
