"""Bootstrapped DQN on Breakout with different numbers of heads (paper, section 6.1)."""

from bootdqn.experiments.atari.run import atari_experiment
from bootdqn.experiments.atari_heads.plot import plot
from bootdqn.experiments.atari_heads.sweep import sweep

EXPERIMENT = atari_experiment(
    name="atari-heads",
    summary="how many heads, on Breakout",
    sweep=sweep,
    plot=plot,
)
