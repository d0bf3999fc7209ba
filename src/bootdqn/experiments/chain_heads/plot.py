"""Time to learn against K and against p, a line a chain."""

from __future__ import annotations

from pathlib import Path

from bootdqn.experiments.tables import (
    DEFINITIONS,
    CsvRow,
    Definition,
    episode_limit,
    learned_at,
    times_by,
    times_table,
)
from bootdqn.figures import COLOURS, Panel, Series, save_times_to_learn

_FULL_SHARING = 1.0


def plot(rows: list[dict[str, str]], stem: Path) -> str:
    """K at p = 1, and p at the K it was varied at: two panels, and tables by both definitions."""
    varied = next(row["num_heads"] for row in rows if float(row["mask_probability"]) < _FULL_SHARING)
    of_heads = [row for row in rows if float(row["mask_probability"]) == _FULL_SHARING]
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
        parts += [f"Learned: {name}. Median of seeds (seeds that learned, where not all did).", ""]
        parts += [times_table("K", _series(of_heads, "num_heads", when)), ""]
        parts += [times_table("p", _series(of_sharing, "mask_probability", when)), ""]
    return "\n".join(parts).strip()


def _series(rows: list[dict[str, str]], column: str, when: Definition) -> list[Series]:
    """One series a chain."""

    def value(row: CsvRow) -> float:
        return float(row[column])

    envs = dict.fromkeys(row["env"] for row in rows)
    return [
        Series(env, colour, times_by([r for r in rows if r["env"] == env], value, when))
        for env, colour in zip(envs, COLOURS, strict=False)
    ]
