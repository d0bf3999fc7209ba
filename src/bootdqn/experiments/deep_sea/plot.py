"""When each size was solved, and bsuite's score."""

from __future__ import annotations

from pathlib import Path

from bootdqn.envs.catalog import make_env
from bootdqn.experiments.tables import CsvRow, Times, episode_limit, largest_solved, times_by, times_table
from bootdqn.figures import COLOURS, Panel, Series, save_times_to_learn
from bootdqn.stats import deep_sea_score


def plot(rows: list[dict[str, str]], stem: Path) -> str:
    """Episodes to solve against size; a table, and the score of both variants."""
    groups = {
        "deterministic": [row for row in rows if "stochastic" not in row["env"]],
        "stochastic": [row for row in rows if "stochastic" in row["env"]],
    }
    series = [
        Series(name, colour, times_by(group, _size, _solved_at))
        for (name, group), colour in zip(groups.items(), COLOURS, strict=False)
    ]
    cap = episode_limit(rows)
    panel = Panel("", "size N", series, bound=lambda n: 100 + 2.0**n, bound_label="100 + 2^N")
    save_times_to_learn(stem, "bsuite's DeepSea", [panel], cap=cap, ylabel="episodes to solve")
    scores = ", ".join(f"{s.label} {deep_sea_score(_solutions(s.times, cap)):.2f}" for s in series)
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


def _size(row: CsvRow) -> float:
    return make_env(row["env"]).horizon


def _solved_at(row: CsvRow) -> float | None:
    return float(row["episodes"]) if int(row["solved"]) else None


def _solutions(times: Times, last: int) -> dict[int, tuple[bool, int]]:
    """By size, whether and when it was solved; bsuite has one seed a size."""
    return {int(size): (False, last) if time is None else (True, int(time)) for size, (time,) in times.items()}
