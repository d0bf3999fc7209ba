import numpy as np
import pytest

from bootdqn.errors import UserError
from bootdqn.stats import BSUITE_LOGGED, deep_sea_score, deep_sea_solved, episodes_to_learn


@pytest.mark.parametrize(
    ("returns", "count", "expected"),
    [
        ([10, 0, 10, 10], 3, 4),  # not in a row
        ([10, 10, 10], 3, 3),
        ([10, 10, 9.999], 3, None),
        ([], 1, None),
        ([0, 10], 1, 2),
        ([11, 0, 10], 2, 3),  # more than optimal counts too
    ],
)
def test_episodes_to_learn_by_hand(returns, count, expected):
    assert episodes_to_learn(returns, 10, count) == expected


def test_the_paper_asks_for_one_hundred():
    returns = np.zeros(300)
    returns[50:149] = 10
    assert episodes_to_learn(returns, 10) is None
    returns[200] = 10
    assert episodes_to_learn(returns, 10) == 201


def flags(*runs):
    """Bad flags from (flag, how many) pairs."""
    return np.concatenate([np.full(count, flag) for flag, count in runs])


def test_episodes_that_bsuite_logs():
    assert BSUITE_LOGGED[:17].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40]
    assert {90, 100, 120, 140, 170, 250, 1200, 1700, 10_000} <= set(BSUITE_LOGGED.tolist())
    assert not {11, 13, 110, 150, 9_500} & set(BSUITE_LOGGED.tolist())


@pytest.mark.parametrize(
    ("bad", "stochastic", "expected"),
    [
        (flags((0, 1)), False, (True, 1)),
        (flags((1, 9), (0, 1)), False, (False, 10)),  # 9/10 is not below 0.9
        (flags((1, 9), (0, 2)), False, (False, 10)),  # 9/11 is, but 11 is not logged
        (flags((1, 9), (0, 3)), False, (True, 12)),
        (flags((1, 95), (0, 20)), False, (False, 100)),  # 0.95 at 100; 115 is not logged
        (flags((1, 95), (0, 25)), False, (True, 120)),
        (flags((1, 950)), False, (False, 900)),
        (flags((1, 10_000), (0, 5_000)), False, (False, 10_000)),
        (flags((0, 99), (1, 1)), True, (True, 100)),  # not before the 100th
        (flags((0, 20), (1, 80), (0, 1), (1, 19)), True, (False, 120)),  # 80/100 is not below 0.8, nor 99/120
        (flags((0, 20), (1, 80), (0, 20)), True, (True, 120)),
        (flags((0, 21), (1, 9_979)), True, (True, 100)),  # once is enough
    ],
)
def test_deep_sea_solved_by_hand(bad, stochastic, expected):
    assert deep_sea_solved(bad, stochastic=stochastic) == expected


def test_deep_sea_solved_needs_episodes():
    with pytest.raises(UserError, match="from episode 100 on, got 99"):
        deep_sea_solved(np.zeros(99), stochastic=True)


def test_deep_sea_score_by_hand():
    # 2**4 + 100 = 116 episodes are too many; 2**10 + 100 = 1124 leaves room for 1000.
    assert deep_sea_score({4: (True, 100), 5: (True, 120), 10: (True, 1000), 12: (False, 400)}) == 0.75
    assert deep_sea_score({4: (True, 116)}) == 0
    assert deep_sea_score({50: (True, 10_000)}) == 1
