"""The paper's figures of regression uncertainty (figure 1 and appendix A), with scores over many data sets."""

from bootdqn.experiments.regression.plot import plot
from bootdqn.experiments.regression.run import cost, describe, run
from bootdqn.experiments.regression.sweep import sweep
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="regression",
    summary="uncertainty of networks: bootstrap, Gaussian process and dropout on twenty points",
    sweep=sweep,
    run=run,
    describe=describe,
    cost=cost,
    plot=plot,
)
