"""Area under the learning curve within 20M frames, on 14 games (paper, appendix D)."""

from bootdqn.experiments.atari.run import atari_experiment
from bootdqn.experiments.atari_auc.plot import plot
from bootdqn.experiments.atari_auc.sweep import sweep

EXPERIMENT = atari_experiment(
    name="atari-auc",
    summary="area under the learning curve in 20M frames, 14 games",
    sweep=sweep,
    plot=plot,
)
