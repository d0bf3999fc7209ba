"""The paper's figure on the regret bounds of UCRL2: long enough to see that regret is not linear (appendix C)."""

from bootdqn.experiments.regret import regret_experiment
from bootdqn.experiments.ucrl2_long.plot import plot
from bootdqn.experiments.ucrl2_long.sweep import sweep

EXPERIMENT = regret_experiment(
    name="ucrl2-long",
    summary="regret of UCRL2 on the stochastic chain until it leaves its linear phase, with the bound's growth",
    sweep=sweep,
    plot=plot,
)
