"""Numbers that say whether, and when, something was learned."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

OPTIMAL_EPISODES = 100
"""The paper calls a chain learned after this many episodes with the optimal return (section 5.1)."""


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
