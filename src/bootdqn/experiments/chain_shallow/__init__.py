"""The same networks explored by other means: epsilon-greedy, ensemble, Thompson (paper, appendix C)."""

from bootdqn.experiments.chain_shallow.plot import plot
from bootdqn.experiments.chain_shallow.sweep import sweep
from bootdqn.experiments.learning import learning_experiment

EXPERIMENT = learning_experiment(
    name="chain-shallow",
    summary="the same networks explored by voting, Thompson sampling and dithering",
    sweep=sweep,
    plot=plot,
)
