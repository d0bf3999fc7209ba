"""Numbers that say whether, and when, something was learned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from bootdqn.errors import require

OPTIMAL_EPISODES = 100
"""The paper calls a chain learned after this many episodes with the optimal return (section 5.1)."""

_RATIOS = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)
BSUITE_LOGGED = np.unique([r * 10**e // 10 for e in range(5) for r in _RATIOS if r * 10**e % 10 == 0])
"""Episodes after which bsuite writes down how a run stands, from 1."""
BSUITE_EPISODES = 10_000
"""Episodes of bsuite's runs on DeepSea."""


def episodes_to_learn(returns: ArrayLike, solved_return: float, count: int = OPTIMAL_EPISODES) -> int | None:
    """Number of the episode that was the `count`-th, not necessarily in a row, to reach `solved_return`.

    Args:
        returns: of successive episodes [E].
        solved_return: what an optimal episode collects.
        count: how many optimal episodes it takes.

    Returns:
        An episode number from 1, or None where the returns hold fewer.
    """
    optimal = np.flatnonzero(np.asarray(returns) >= solved_return)
    return int(optimal[count - 1]) + 1 if len(optimal) >= count else None


def deep_sea_solved(bad: ArrayLike, *, stochastic: bool = False) -> tuple[bool, int]:
    """Whether, and when, bsuite would call a run on DeepSea solved.

    That is at the first episode that bsuite logs after which fewer than 90% of all episodes so far were bad; in
    the stochastic version fewer than 80%, and not before the 100th.

    Args:
        bad: whether the agent left the way to the reward by choice in each of successive episodes [E].
        stochastic: which version was played.

    Returns:
        Whether it is solved within bsuite's 10,000 episodes; at which episode, or else the last that is logged.
    """
    total = np.cumsum(np.asarray(bad, bool)[:BSUITE_EPISODES])
    threshold, first = (0.8, 100) if stochastic else (0.9, 1)
    logged = BSUITE_LOGGED[(first <= BSUITE_LOGGED) & (len(total) >= BSUITE_LOGGED)]
    require(len(logged) > 0, f"bsuite judges DeepSea from episode {first} on, got {len(total)} episodes")
    solved = logged[total[logged - 1] / logged < threshold]
    return (True, int(solved[0])) if len(solved) else (False, int(logged[-1]))


def deep_sea_score(solutions: Mapping[int, tuple[bool, int]]) -> float:
    """Score of DeepSea as bsuite has it: the fraction of sizes solved sooner than dithering would.

    Args:
        solutions: `deep_sea_solved` of one run for every size.
    """
    return float(np.mean([solved and episode < 2**size + 100 for size, (solved, episode) in solutions.items()]))
