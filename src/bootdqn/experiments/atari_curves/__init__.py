"""Learning curves of bootstrapped DQN and DQN on single games (paper, section 6.2)."""

from bootdqn.experiments.atari.run import atari_experiment
from bootdqn.experiments.atari_curves.plot import plot
from bootdqn.experiments.atari_curves.sweep import sweep

EXPERIMENT = atari_experiment(
    name="atari-curves",
    summary="learning curves on Atari games, boot against dqn",
    sweep=sweep,
    plot=plot,
)
