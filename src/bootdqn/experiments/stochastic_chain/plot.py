"""Regret over episodes, and after the last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bootdqn.envs.catalog import make_env
from bootdqn.envs.tabular import StochasticChain
from bootdqn.experiments.regret import final_cell, final_values, ratio_interval, regret_curves
from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.stochastic_chain.sweep import VERSIONS
from bootdqn.figures import RegretPanel, save_regret

_MEASURES = {"regret": "regret by realised returns", "pseudo_regret": "regret in expectation"}


def plot(rows: list[CsvRow], stem: Path) -> str:
    """A panel for every version and measure; a table for every measure, and ratios to PSRL."""
    groups: dict[str, dict[str, list[CsvRow]]] = {}
    for row in rows:
        version, _, label = row["trial"].partition("-")
        groups.setdefault(version, {}).setdefault(label, []).append(row)
    panels = [
        [
            RegretPanel(
                version,
                regret_curves(by_label, column),
                bound=_always_right(version),
                bound_label="always right",
            )
            for version, by_label in groups.items()
        ]
        for column in _MEASURES
    ]
    save_regret(stem, "The six-state stochastic chain", panels, ylabels=list(_MEASURES.values()))
    episodes = max(int(row["episode"]) for row in rows)
    seeds = len({row["seed"] for row in rows})
    parts = []
    for column, measure in _MEASURES.items():
        parts += [
            f"{measure.capitalize()} after {episodes} episodes: mean of {seeds} seeds, its 95% interval, and the "
            "median.",
            _table(groups, column),
        ]
    ratios = [_ratio(version, by_label) for version, by_label in groups.items()]
    known = ", ".join(ratio for ratio in ratios if ratio) or "not yet known"
    return "\n\n".join([*parts, f"Regret in expectation of boot over that of psrl: {known}."])


def _always_right(version: str) -> Callable[[NDArray[np.floating]], NDArray[np.floating]]:
    """The least regret in expectation that a policy without a clock can have."""
    env = make_env(VERSIONS[version])
    assert isinstance(env, StochasticChain)
    policy = jnp.asarray(np.tile(env.right_actions[:, None] == np.arange(2), (env.horizon, 1, 1)), jnp.float32)
    loss = float(env.mdp.regret(policy))
    return lambda episodes: loss * episodes


def _table(groups: dict[str, dict[str, list[CsvRow]]], column: str) -> str:
    labels = dict.fromkeys(label for by_label in groups.values() for label in by_label)
    lines = ["| agent | " + " | ".join(groups) + " |", "|---|" + "---:|" * len(groups)]
    lines += [
        f"| {label} | "
        + " | ".join(final_cell(final_values(by_label.get(label, []), column)) for by_label in groups.values())
        + " |"
        for label in labels
    ]
    return "\n".join(lines)


def _ratio(version: str, by_label: dict[str, list[CsvRow]]) -> str | None:
    """How boot compares with posterior sampling, where both were run."""
    if not {"boot", "psrl"} <= by_label.keys():
        return None
    boot, psrl = (final_values(by_label[label], "pseudo_regret") for label in ("boot", "psrl"))
    return f"{version} {ratio_interval(boot, psrl)}"
