"""Regret over episodes, and after the last."""

from __future__ import annotations

from pathlib import Path

from bootdqn.envs.catalog import env_spec, make_env
from bootdqn.experiments.regret import final_cell, regret_curve
from bootdqn.experiments.runner import CsvRow
from bootdqn.experiments.stochastic_chain.sweep import VERSIONS
from bootdqn.figures import RegretCurve, RegretPanel, save_regret

_MEASURES = {"regret": "regret by realised returns", "pseudo_regret": "regret in expectation"}


def plot(rows: list[CsvRow], stem: Path) -> str:
    """A panel for every version and measure; a table for every measure, and ratios to PSRL."""
    specs = {version: env_spec(make_env(env)) for version, env in VERSIONS.items()}
    present = [version for version, spec in specs.items() if any(row["env"] == spec for row in rows)]
    curves = {
        column: {version: _curves([r for r in rows if r["env"] == specs[version]], column) for version in present}
        for column in _MEASURES
    }
    panels = [
        [RegretPanel(version, list(by_version[version].values())) for version in present]
        for by_version in curves.values()
    ]
    save_regret(stem, "The six-state stochastic chain", panels, ylabels=list(_MEASURES.values()))
    episodes = max(int(row["episode"]) for row in rows)
    seeds = len({row["seed"] for row in rows})
    parts = []
    for column, measure in _MEASURES.items():
        parts += [
            f"{measure.capitalize()} after {episodes} episodes: mean of {seeds} seeds and its 95% interval.",
            _table(curves[column]),
        ]
    parts.append(_ratios(curves["pseudo_regret"]))
    return "\n\n".join(parts)


def _curves(rows: list[CsvRow], column: str) -> dict[str, RegretCurve]:
    agents = dict.fromkeys(row["agent"] for row in rows)
    return {agent: regret_curve([r for r in rows if r["agent"] == agent], agent, column) for agent in agents}


def _table(curves: dict[str, dict[str, RegretCurve]]) -> str:
    agents = dict.fromkeys(agent for by_agent in curves.values() for agent in by_agent)
    lines = ["| agent | " + " | ".join(curves) + " |", "|---|" + "---:|" * len(curves)]
    lines += [
        f"| {agent} | " + " | ".join(final_cell(by_agent.get(agent)) for by_agent in curves.values()) + " |"
        for agent in agents
    ]
    return "\n".join(lines)


def _ratios(curves: dict[str, dict[str, RegretCurve]]) -> str:
    """How boot compares with posterior sampling, where both were run."""
    ratios = [
        f"{version} {by_agent['boot'].means[-1] / by_agent['psrl'].means[-1]:.2f}"
        for version, by_agent in curves.items()
        if {"boot", "psrl"} <= by_agent.keys()
    ]
    return f"Regret in expectation of boot over that of psrl: {', '.join(ratios) or 'not yet known'}."
