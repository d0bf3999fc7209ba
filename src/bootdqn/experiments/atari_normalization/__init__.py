"""Boot-DQN against Boot-DQN+, which does not divide the trunk's gradient by K (paper, appendix D)."""

from bootdqn.experiments.atari.run import atari_experiment
from bootdqn.experiments.atari_normalization.plot import plot
from bootdqn.experiments.atari_normalization.sweep import sweep

EXPERIMENT = atari_experiment(
    name="atari-normalization",
    summary="dividing the trunk's gradient by K, on Beam Rider",
    sweep=sweep,
    plot=plot,
)
