"""The uncertainty of regression methods (paper, figure 1 and appendix A), with scores over many data sets."""

from bootdqn.experiments.engine.experiment import Experiment
from bootdqn.experiments.regression.plot import plot
from bootdqn.experiments.regression.trials import cost, describe, run, sweep

EXPERIMENT = Experiment(
    name="regression",
    summary="uncertainty of networks: bootstrap, Gaussian process and dropout on twenty points",
    sweep=sweep,
    run=run,
    describe=describe,
    cost=cost,
    plot=plot,
)
