"""Time to learn against K and against p, a line a chain."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.tables import (
    DEFINITIONS,
    Definition,
    definition_heading,
    episode_limit,
    labelled_series,
    learned_at,
    times_table,
)
from bootdqn.figures import Panel, Series, save_times_to_learn

_FULL_SHARING = 1.0


def plot(rows: list[CsvRow], stem: Path) -> str:
    """K at p = 1, and p at the K it was varied at: two panels, and tables by both definitions."""
    of_heads = [row for row in rows if float(row["mask_probability"]) == _FULL_SHARING]
    varied = next((row["num_heads"] for row in rows if row not in of_heads), rows[0]["num_heads"])
    of_sharing = [row for row in rows if row["num_heads"] == varied]
    panels = [
        Panel(
            "all heads learn from all data (p = 1)",
            "heads K",
            _series(of_heads, "num_heads", learned_at),
            log_x=True,
        ),
        Panel(
            f"K = {varied}",
            "probability p that a head learns from an episode",
            _series(of_sharing, "mask_probability", learned_at),
        ),
    ]
    cap = episode_limit(rows)
    save_times_to_learn(stem, "Bootstrapped DQN: how many heads, how much sharing?", panels, cap=cap)
    parts = []
    for name, when in DEFINITIONS.items():
        parts += [definition_heading(name), ""]
        parts += [times_table("K", _series(of_heads, "num_heads", when)), ""]
        parts += [times_table("p", _series(of_sharing, "mask_probability", when)), ""]
    return "\n".join(parts).strip()


def _series(rows: list[CsvRow], column: str, when: Definition) -> list[Series]:
    """One series a chain."""
    envs = dict.fromkeys(row["env"] for row in rows)
    groups = {env: [row for row in rows if row["env"] == env] for env in envs}
    return labelled_series(groups, lambda row: float(row[column]), when)
