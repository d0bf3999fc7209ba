"""The paper's figure "Bootstrapped DQN matches efficient tabular RL", with a control (appendix C)."""

from bootdqn.experiments.regret import describe_regret, measure_regret, regret_cost
from bootdqn.experiments.runner import Experiment
from bootdqn.experiments.stochastic_chain.plot import plot
from bootdqn.experiments.stochastic_chain.sweep import sweep

EXPERIMENT = Experiment(
    name="stochastic-chain",
    summary="regret on the stochastic chain, against PSRL, UCRL2 and other agents that see the state",
    sweep=sweep,
    run=measure_regret,
    describe=describe_regret,
    cost=regret_cost,
    plot=plot,
)
