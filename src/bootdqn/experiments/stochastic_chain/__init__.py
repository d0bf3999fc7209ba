"""The paper's figure "Bootstrapped DQN matches efficient tabular RL", with a control (appendix C)."""

from bootdqn.experiments.regret import regret_experiment
from bootdqn.experiments.stochastic_chain.plot import plot
from bootdqn.experiments.stochastic_chain.sweep import sweep

EXPERIMENT = regret_experiment(
    name="stochastic-chain",
    summary="regret on the stochastic chain, against PSRL, UCRL2 and other agents that see the state",
    sweep=sweep,
    plot=plot,
)
