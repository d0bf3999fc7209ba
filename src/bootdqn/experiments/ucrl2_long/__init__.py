"""The paper's figure on the regret bounds of UCRL2: long enough to see that regret is not linear (appendix C)."""

from bootdqn.experiments.regret import describe_regret, measure_regret, regret_cost
from bootdqn.experiments.runner import Experiment
from bootdqn.experiments.ucrl2_long.plot import plot
from bootdqn.experiments.ucrl2_long.sweep import sweep

EXPERIMENT = Experiment(
    name="ucrl2-long",
    summary="regret of UCRL2 on the stochastic chain until it leaves its linear phase, with the bound's growth",
    sweep=sweep,
    run=measure_regret,
    describe=describe_regret,
    cost=regret_cost,
    plot=plot,
)
