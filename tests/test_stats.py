import numpy as np
import pytest

from bootdqn.stats import episodes_to_learn


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
