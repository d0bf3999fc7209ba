"""Time to learn against the length of the chain (paper, section 5.1)."""

from bootdqn.experiments.chain_scaling.plot import plot
from bootdqn.experiments.chain_scaling.sweep import sweep
from bootdqn.experiments.learning import describe_training, measure_learning, training_cost
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="chain-scaling",
    summary="time to learn against the length of the chain: four agents, and boot to 200 states",
    sweep=sweep,
    run=measure_learning,
    describe=describe_training,
    cost=training_cost,
    plot=plot,
)
