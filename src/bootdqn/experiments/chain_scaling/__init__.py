"""Time to learn against the length of the chain (paper, section 5.1)."""

from bootdqn.experiments.chain_scaling.plot import plot
from bootdqn.experiments.chain_scaling.sweep import sweep
from bootdqn.experiments.learning import learning_experiment

EXPERIMENT = learning_experiment(
    name="chain-scaling",
    summary="time to learn against the length of the chain: four agents, and boot to 200 states",
    sweep=sweep,
    plot=plot,
)
