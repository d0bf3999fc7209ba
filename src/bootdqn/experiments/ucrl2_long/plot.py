"""Regret over episodes on logarithmic axes, with the growth of UCRL2's bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bootdqn.envs.catalog import make_env
from bootdqn.experiments.regret import regret_curves
from bootdqn.experiments.runner import CsvRow
from bootdqn.figures import RegretCurve, RegretPanel, save_regret

_DECADES = [10**power for power in range(1, 8)]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """One panel; a table of regret, and of how fast it grows, at every power of ten and at the end."""
    trials: dict[str, list[CsvRow]] = {}
    for row in rows:
        trials.setdefault(row["trial"], []).append(row)
    curves = regret_curves(trials, "pseudo_regret")
    states, actions, horizon = make_env(rows[0]["env"]).mdp.shape

    def bound(episodes: NDArray[np.floating]) -> NDArray[np.floating]:
        return states * np.sqrt(actions * horizon * episodes)

    panel = RegretPanel("", curves, bound=bound, bound_label="S √(A T), T steps")
    save_regret(
        stem,
        "The six-state stochastic chain, in the long run",
        [[panel]],
        ylabels=["regret in expectation"],
        log=True,
    )
    seeds = len({row["seed"] for row in rows})
    last = max(int(curve.episodes[-1]) for curve in curves)
    shown = [*(decade for decade in _DECADES if decade < last), last]
    header = [
        "| episodes | " + " | ".join(c.label for c in curves) + " | S √(A T) |",
        "|---:|" + "---:|" * (len(curves) + 1),
    ]
    body = [
        f"| {episodes:,} | "
        + " | ".join(_cell(curve, episodes) for curve in curves)
        + f" | {float(bound(np.array(episodes))):,.0f} |"
        for episodes in shown
    ]
    return "\n\n".join(
        [
            f"Regret in expectation, mean of {seeds} seeds; in brackets b of the growth as (episodes)^b over the "
            "tenfold before: 1 is linear, 0.5 the bound's.",
            "\n".join(header + body),
        ]
    )


def _cell(curve: RegretCurve, episodes: int) -> str:
    if episodes > curve.episodes[-1]:
        return ""
    values = np.interp(np.log([episodes / 10, episodes]), np.log(curve.episodes), np.log(curve.means))
    text = f"{np.exp(values[1]):,.0f}"
    # The first tenfold has no beginning.
    return text if episodes / 10 < curve.episodes[0] else f"{text} ({(values[1] - values[0]) / np.log(10):.2f})"
