"""The paper's figure "Planning, learning and exploration in RL" (section 5), computed."""

from bootdqn.experiments.planning_trees.plot import plot
from bootdqn.experiments.planning_trees.run import cost, describe, run
from bootdqn.experiments.planning_trees.sweep import sweep
from bootdqn.experiments.runner import Experiment

EXPERIMENT = Experiment(
    name="planning-trees",
    summary="what a bandit, dithering, shallow and deep exploration can plan towards in three steps",
    sweep=sweep,
    run=run,
    describe=describe,
    cost=cost,
    plot=plot,
)
