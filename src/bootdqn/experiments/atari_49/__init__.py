"""All 49 games: best scores, frames to human level, cumulative rewards (paper, section 6, appendix D)."""

from bootdqn.experiments.atari.run import atari_experiment
from bootdqn.experiments.atari_49.plot import plot
from bootdqn.experiments.atari_49.sweep import sweep

EXPERIMENT = atari_experiment(
    name="atari-49",
    summary="best scores, frames to human level and cumulative rewards over 49 games",
    sweep=sweep,
    plot=plot,
)
