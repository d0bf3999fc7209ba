"""Planning trees against sets written down by hand."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bootdqn.experiments.engine.experiment import Context
from bootdqn.experiments.planning_trees import PLANNERS, Planner, run

CONTEXT = Context(lambda: False, lambda share: None, ThreadPoolExecutor(1), Path())


def planned(planner: Planner, goal: str) -> set[str]:
    return {row["branch"] for row in run(planner, CONTEXT) if row[f"plans_{goal}"]}


@pytest.mark.parametrize(
    ("name", "reward", "information"),
    [
        ("bandit", {"LLL"}, {"RRR"}),  # only the last step shows what it brings
        ("dithering", {"L", "LL", "LLL"}, set()),
        ("shallow", {"L", "LL", "LLL"}, {"RRR"}),
        ("deep", {"L", "LL", "LLL"}, {"R", "RR", "RRR"}),
    ],
)
def test_what_the_papers_four_can_plan(name, reward, information):
    assert planned(PLANNERS[name], "reward") == reward
    assert planned(PLANNERS[name], "information") == information


def test_the_whole_tree():
    rows = run(PLANNERS["deep"], CONTEXT)
    assert [row["branch"] for row in rows] == [
        *("L", "R", "LL", "LR", "RL", "RR", "LLL", "LLR", "LRL", "LRR", "RLL", "RLR", "RRL", "RRR"),
    ]
    assert [row["state"] for row in rows] == [-1, 1, -2, 0, 0, 2, -3, -1, -1, 1, -1, 1, 1, 3]
    assert [row["branch"] for row in rows if row["rewarding"]] == ["LLL"]
    assert [row["branch"] for row in rows if row["informative"]] == ["RRR"]


def test_more_than_one_way_and_a_wall():
    # On s_-1, s_0, s_1 in two steps: the reward is one step left; from s_1 it is out of reach; the wall keeps it.
    planner = Planner(reward_steps=2, information_steps=1, last_state=1, horizon=2)
    assert planned(planner, "reward") == {"L", "LL"}
    assert planned(planner, "information") == {"R", "RR"}
    # With three steps there is time to go right first, but one who looks two steps ahead does not see it from s_0.
    longer = Planner(reward_steps=2, information_steps=0, last_state=1, horizon=3)
    assert planned(longer, "reward") == {"L", "LL", "LR", "LLL", "LRL", "RL", "RLL"}
    farther = Planner(reward_steps=3, information_steps=0, last_state=1, horizon=3)
    assert planned(farther, "reward") == {"L", "R", "LL", "LR", "RL", "LLL", "LRL", "RLL"}
