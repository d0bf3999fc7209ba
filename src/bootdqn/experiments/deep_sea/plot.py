"""When each size was solved, and bsuite's score."""

from __future__ import annotations

from pathlib import Path

from bootdqn.envs.catalog import make_env
from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.tables import episode_limit, labelled_series, largest_solved, times_table
from bootdqn.figures import Panel, save_times_to_learn
from bootdqn.stats import deep_sea_score


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Episodes to solve against size; a table, and the score of both variants."""
    groups = {
        "deterministic": [row for row in rows if "stochastic" not in row["env"]],
        "stochastic": [row for row in rows if "stochastic" in row["env"]],
    }
    groups = {name: group for name, group in groups.items() if group}
    series = labelled_series(groups, _size, _solved_at)
    panel = Panel("", "size N", series, bound=lambda n: 100 + 2.0**n, bound_label="100 + 2^N")
    save_times_to_learn(stem, "bsuite's DeepSea", [panel], cap=episode_limit(rows), ylabel="episodes to solve")
    scores = ", ".join(f"{name} {_score(group):.2f}" for name, group in groups.items())
    solved = ", ".join(f"{s.label} {largest_solved(s)}" for s in series)
    return "\n".join(
        [
            "Episode at which bsuite calls a size solved; a dash where it does not.",
            "",
            times_table("N", series),
            "",
            f"bsuite's score over these sizes: {scores}. Largest size solved: {solved}.",
        ]
    )


def _size(row: CsvRow) -> int:
    return make_env(row["env"]).horizon


def _solved_at(row: CsvRow) -> float | None:
    return float(row["episodes"]) if int(row["solved"]) else None


def _score(rows: list[CsvRow]) -> float:
    """Bsuite has one seed a size."""
    return deep_sea_score({_size(row): (bool(int(row["solved"])), int(row["episodes"])) for row in rows})
