"""bsuite's DeepSea, deterministic and stochastic, scored as bsuite scores it."""

from bootdqn.experiments.deep_sea.plot import plot
from bootdqn.experiments.deep_sea.run import run
from bootdqn.experiments.deep_sea.sweep import sweep
from bootdqn.experiments.learning import learning_experiment

EXPERIMENT = learning_experiment(
    name="deep-sea",
    summary="bsuite's DeepSea, deterministic and stochastic, with bsuite's score",
    sweep=sweep,
    plot=plot,
    run=run,
)
