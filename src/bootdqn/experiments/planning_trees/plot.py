"""Four trees, and what each agent can plan from the start."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.runner import CsvRow
from bootdqn.figures import Branch, save_trees

_TITLES = {
    "bandit": "Bandit algorithm",
    "dithering": "RL + dithering",
    "shallow": "RL + shallow exploration",
    "deep": "RL + deep exploration",
}


def plot(rows: list[CsvRow], stem: Path) -> str:
    """A tree for every agent, and a table of its plans."""
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
    """Ways from the start on which every branch is planned, to their ends."""
    planned = {row["branch"] for row in tree if row[f"plans_{goal}"] == "1"}
    ends = [row["branch"] for row in tree if row["rewarding" if goal == "reward" else "informative"] == "1"]
    ways = [end for end in ends if all(end[:depth] in planned for depth in range(1, len(end) + 1))]
    return ", ".join(ways) or "none"
