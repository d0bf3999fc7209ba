"""The paper's figure "Planning, learning and exploration in RL" (section 5), computed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bootdqn.experiments.engine.experiment import Context, Cost, CsvRow, Experiment, Preset, ResultRow, Trial
from bootdqn.plots.trees import Branch, save_trees

_HORIZON = 3
_ACTIONS = {"L": -1, "R": 1}
_TITLES = {
    "bandit": "Bandit algorithm",
    "dithering": "RL + dithering",
    "shallow": "RL + shallow exploration",
    "deep": "RL + deep exploration",
}


@dataclass(frozen=True, kw_only=True)
class Planner:
    """An agent that knows a deterministic chain s_-n ... s_n in which s_-n pays, but not what s_n pays."""

    reward_steps: int
    """How many steps ahead it considers rewards."""
    information_steps: int
    """How many steps ahead it considers what it could learn."""
    last_state: int = 3
    """The number n of the last state."""
    horizon: int = _HORIZON
    """The number of steps from s_0."""


PLANNERS: dict[str, Planner] = {
    "bandit": Planner(reward_steps=1, information_steps=1),
    "dithering": Planner(reward_steps=_HORIZON, information_steps=0),
    "shallow": Planner(reward_steps=_HORIZON, information_steps=1),
    "deep": Planner(reward_steps=_HORIZON, information_steps=_HORIZON),
}
"""The paper's four kinds of agents.

A bandit considers what an action brings at once. An RL agent considers rewards to the end; of information,
dithering considers none, shallow exploration what the next step brings, and deep exploration all.
"""


def sweep(preset: Preset) -> list[Trial]:
    """Make the same four trials for every preset."""
    return [Trial(name, planner) for name, planner in PLANNERS.items()]


def run(planner: Planner, context: Context) -> list[ResultRow]:
    """List every branch of the tree of actions within the horizon, and whether the agent can plan towards it.

    Columns:
        branch: the actions from the start to the end of the branch, the last of which is the branch itself.
        state: the state that the branch leads to.
        rewarding, informative: whether that state gives reward or information.
        plans_reward, plans_information: whether the agent, at the beginning of the branch, can see reward or
            information at the end of a path through it.
    """
    depths = range(1, planner.horizon + 1)
    branches = ["".join(actions) for depth in depths for actions in product(_ACTIONS, repeat=depth)]
    return [
        {
            "branch": branch,
            "state": _state(planner, branch),
            "rewarding": int(_state(planner, branch) == -planner.last_state),
            "informative": int(_state(planner, branch) == planner.last_state),
            "plans_reward": int(_leads_to(planner, branch, -planner.last_state, planner.reward_steps)),
            "plans_information": int(_leads_to(planner, branch, planner.last_state, planner.information_steps)),
        }
        for branch in branches
    ]


def _state(planner: Planner, actions: str) -> int:
    """Return the state that actions lead to from s_0; the ends of the chain are walls."""
    position = 0
    for action in actions:
        position = max(-planner.last_state, min(planner.last_state, position + _ACTIONS[action]))
    return position


def _leads_to(planner: Planner, branch: str, goal: int, steps: int) -> bool:
    """Return whether some path through a branch reaches the goal within `steps` from where the branch begins."""
    if steps == 0:
        return False
    if _state(planner, branch) == goal:
        return True
    if len(branch) == planner.horizon:
        return False
    return any(_leads_to(planner, branch + action, goal, steps - 1) for action in _ACTIONS)


def _describe(planner: Planner) -> ResultRow:
    """Return how far the agent looks ahead."""
    return {"reward_steps": planner.reward_steps, "information_steps": planner.information_steps}


def _cost(planner: Planner) -> Cost:
    """Estimate the cost of a trial, which is next to nothing."""
    return Cost(core_seconds=0.1, least_seconds=0.1, bytes=10**6)


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw a tree per agent; return a table of their plans."""
    trees: dict[str, list[CsvRow]] = {}
    for row in rows:
        trees.setdefault(row["trial"], []).append(row)
    save_trees(
        stem, "What can be planned in three steps", {_TITLES[name]: _branches(t) for name, t in trees.items()}
    )
    lines = [
        "| agent | looks ahead for reward | for information | plans from s_0 for reward | for information "
        "| branches it can plan |",
        "|---|---:|---:|---|---|---|",
    ]
    lines += [
        f"| {name} | {tree[0]['reward_steps']} | {tree[0]['information_steps']} | {_plans(tree, 'reward')} | "
        f"{_plans(tree, 'information')} | {_planned(tree)} |"
        for name, tree in trees.items()
    ]
    heading = "A branch is named by the actions that lead to its end, L for left and R for right."
    return "\n\n".join([heading, "\n".join(lines)])


def _branches(tree: list[CsvRow]) -> list[Branch]:
    return [
        Branch(
            actions=row["branch"],
            state=int(row["state"]),
            rewarding=row["rewarding"] == "1",
            informative=row["informative"] == "1",
            planned=row in _planned_rows(tree),
        )
        for row in tree
    ]


def _planned_rows(tree: list[CsvRow]) -> list[CsvRow]:
    return [row for row in tree if "1" in (row["plans_reward"], row["plans_information"])]


def _planned(tree: list[CsvRow]) -> str:
    return ", ".join(row["branch"] for row in _planned_rows(tree)) or "none"


def _plans(tree: list[CsvRow], goal: str) -> str:
    """List the ends of the paths from the start on which every branch is planned."""
    planned = {row["branch"] for row in tree if row[f"plans_{goal}"] == "1"}
    ends = [row["branch"] for row in tree if row["rewarding" if goal == "reward" else "informative"] == "1"]
    paths = [end for end in ends if all(end[:depth] in planned for depth in range(1, len(end) + 1))]
    return ", ".join(paths) or "none"


EXPERIMENT = Experiment(
    name="planning-trees",
    summary="what a bandit, dithering, shallow and deep exploration can plan towards in three steps",
    sweep=sweep,
    run=run,
    describe=_describe,
    cost=_cost,
    plot=plot,
)
