"""Bootstrapped DQN on Breakout with different mask probabilities, and DQN (paper, section 6.1)."""

from bootdqn.experiments.atari.run import atari_experiment
from bootdqn.experiments.atari_sharing.plot import plot
from bootdqn.experiments.atari_sharing.sweep import sweep

EXPERIMENT = atari_experiment(
    name="atari-sharing",
    summary="how much data heads share, on Breakout",
    sweep=sweep,
    plot=plot,
)
