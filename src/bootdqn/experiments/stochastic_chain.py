"""The paper's figure "Bootstrapped DQN matches efficient tabular RL", with a control (paper, appendix C)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bootdqn.core.config import AGENTS, AgentConfig
from bootdqn.envs.registry import env_spec, make_env
from bootdqn.envs.tabular_chains import StochasticChain
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.regret import (
    final_cell,
    final_values,
    ratio_interval,
    regret_curves,
    regret_experiment,
)
from bootdqn.plots.regret import RegretPanel, save_regret
from bootdqn.runs.config import NAMED_AGENTS, RunConfig, loop_of_agent
from bootdqn.tabular.agents import PSRL, TABULAR_AGENTS, TabularAgent

VERSIONS: dict[str, str] = {
    "noisy": "stochastic_chain,tabularl",
    "noiseless": "stochastic_chain,noiseless",
    "scrambled": "stochastic_chain,tabularl,scrambled,scramble_seed=6",
}
"""The versions of the chain; in the scrambled one the actions to the right are 0, 1, 1, 0, 1, 0."""
_AGENTS: dict[str, tuple[str, AgentConfig | TabularAgent]] = {
    **{name: (name, agent) for name, agent in NAMED_AGENTS.items()},
    "boot-p=0.5": ("boot", replace(AGENTS["boot"], mask_probability=0.5)),
    "psrl-precise": ("psrl", PSRL(noise_precision=100.0)),
}
"""The name and configuration of an agent by its label; `psrl-precise` assumes almost noiseless rewards."""
_LABELS: dict[str, tuple[str, ...]] = {
    "noisy": ("boot", "boot-p=0.5", "dqn", *TABULAR_AGENTS),
    "noiseless": ("boot", "dqn", *TABULAR_AGENTS, "psrl-precise"),
    "scrambled": ("boot", "boot-p=0.5", "dqn", "psrl"),
}
"""The agents on every version; for tabular baselines the scrambled chain is the same as the noisy one."""
_SMOKE = ("boot", "psrl", "ucrl2", "psrl-precise")
_EPISODES: dict[Preset, int] = {"smoke": 20, "quick": 500, "paper": 2000}
_SEEDS: dict[Preset, int] = {"smoke": 2, "quick": 4, "paper": 10}
_MEASURES = {"regret": "regret by realised returns", "pseudo_regret": "regret in expectation"}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of deep agents and tabular baselines on three versions of the six-state chain."""
    return [
        Trial(
            f"{version}-{label}",
            RunConfig(
                loop=loop_of_agent(_AGENTS[label][0]),
                env=env_spec(make_env(env)),
                agent_name=_AGENTS[label][0],
                agent=_AGENTS[label][1],
                episodes=_EPISODES[preset],
                num_seeds=_SEEDS[preset],
            ),
        )
        for version, env in VERSIONS.items()
        for label in _LABELS[version]
        if preset != "smoke" or label in _SMOKE
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw a panel per version and measure; return a table per measure, and ratios to PSRL."""
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
    """Return the regret in expectation of always going right, as a function of the number of episodes.

    It is the least that a policy without a clock can have.
    """
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
    """Compare boot with posterior sampling, if both were run."""
    if not {"boot", "psrl"} <= by_label.keys():
        return None
    boot, psrl = (final_values(by_label[label], "pseudo_regret") for label in ("boot", "psrl"))
    return f"{version} {ratio_interval(boot, psrl)}"


EXPERIMENT = regret_experiment(
    name="stochastic-chain",
    summary="regret on the stochastic chain, against PSRL, UCRL2 and other tabular baselines",
    sweep=sweep,
    plot=plot,
)
