"""bsuite's DeepSea, deterministic and stochastic, scored as bsuite scores it."""

from bootdqn.experiments.deep_sea.plot import plot
from bootdqn.experiments.deep_sea.run import run
from bootdqn.experiments.deep_sea.sweep import sweep
from bootdqn.experiments.learning import describe_training, training_cost
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="deep-sea",
    summary="bsuite's DeepSea, deterministic and stochastic, with bsuite's score",
    sweep=sweep,
    run=run,
    describe=describe_training,
    cost=training_cost,
    plot=plot,
)
