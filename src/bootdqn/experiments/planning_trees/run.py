"""All that can happen within the horizon, and which of it an agent can plan towards."""

from __future__ import annotations

from itertools import product

from bootdqn.experiments.planning_trees.sweep import Planner
from bootdqn.experiments.runner import Context, Cost, Row

ACTIONS = {"L": -1, "R": 1}


def run(planner: Planner, context: Context) -> list[Row]:
    """Every branch of the tree of actions.

    Columns:
        branch: the actions from the start to its end, the last of which is the branch itself.
        state: that it leads to.
        rewarding, informative: whether that state is.
        plans_reward, plans_information: whether the agent, where it would take the branch, can see reward, or
            information, at the end of a way through it.
    """
    depths = range(1, planner.horizon + 1)
    branches = ["".join(actions) for depth in depths for actions in product(ACTIONS, repeat=depth)]
    return [
        {
            "branch": branch,
            "state": state(planner, branch),
            "rewarding": int(state(planner, branch) == -planner.last_state),
            "informative": int(state(planner, branch) == planner.last_state),
            "plans_reward": int(_leads_to(planner, branch, -planner.last_state, planner.reward_steps)),
            "plans_information": int(_leads_to(planner, branch, planner.last_state, planner.information_steps)),
        }
        for branch in branches
    ]


def state(planner: Planner, actions: str) -> int:
    """Where actions lead from s_0; the ends of the chain are walls."""
    position = 0
    for action in actions:
        position = max(-planner.last_state, min(planner.last_state, position + ACTIONS[action]))
    return position


def _leads_to(planner: Planner, branch: str, goal: int, steps: int) -> bool:
    """Whether some way through a branch is at the goal within so many steps from where the branch begins."""
    if steps == 0:
        return False
    if state(planner, branch) == goal:
        return True
    if len(branch) == planner.horizon:
        return False
    return any(_leads_to(planner, branch + action, goal, steps - 1) for action in ACTIONS)


def describe(planner: Planner) -> Row:
    """How far it looks."""
    return {"reward_steps": planner.reward_steps, "information_steps": planner.information_steps}


def cost(planner: Planner) -> Cost:
    """Next to nothing."""
    return Cost(core_seconds=0.1, least_seconds=0.1, bytes=10**6)
