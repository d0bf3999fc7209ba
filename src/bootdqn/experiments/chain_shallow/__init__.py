"""The same networks explored by other means: epsilon-greedy, ensemble, Thompson (paper, appendix C)."""

from bootdqn.experiments.chain_shallow.plot import plot
from bootdqn.experiments.chain_shallow.sweep import sweep
from bootdqn.experiments.learning import describe_training, measure_learning, training_cost
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="chain-shallow",
    summary="the same networks explored by voting, Thompson sampling and dithering",
    sweep=sweep,
    run=measure_learning,
    describe=describe_training,
    cost=training_cost,
    plot=plot,
)
