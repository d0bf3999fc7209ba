"""The same networks with other exploration: epsilon-greedy, ensemble and Thompson sampling (paper, appendix C)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bootdqn.core.config import AGENTS
from bootdqn.experiments.chain_scaling import AGENT_NAMES, EPISODES, NUM_SEEDS, chain_length
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.learning_tables import agent_series, episode_limit, learned_at, number, times_table
from bootdqn.experiments.shared.learning_time import learning_experiment
from bootdqn.plots.times import Panel, save_times_to_learn
from bootdqn.runs.config import RunConfig

_BOOT = AGENTS["boot"]
_INITIAL_SPREADS = {"wide": _BOOT.initial_spread, "narrow": 0.3}
"""The tuned spread, which makes half of the heads optimistic, and one as narrow as usual initial biases."""
_LENGTHS: dict[Preset, tuple[int, ...]] = {"smoke": (4,), "quick": (20,), "paper": (10, 20, 30)}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of all ways to explore on scrambled chains, from wide and from narrow initial values.

    The configuration is that of bootstrapped DQN, with nothing changed but how the agent acts.
    """
    return [
        Trial(
            f"chain{length}-{width}-{name}",
            RunConfig(
                loop="compiled",
                env=f"chain:{length},scrambled",
                agent_name=name,
                # Hyperparameters that were tuned per agent are set to those of boot.
                agent=replace(AGENTS[name], initial_spread=spread, learning_rate=_BOOT.learning_rate),
                episodes=EPISODES[preset],
                num_seeds=NUM_SEEDS[preset],
            ),
        )
        for width, spread in _INITIAL_SPREADS.items()
        for length in _LENGTHS[preset]
        for name in AGENT_NAMES
    ]


def _first_optimal_episode(row: CsvRow) -> float | None:
    return number(row["first_optimal_episode"])


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw a panel per initial spread; return tables of when agents learned, and of their first success."""
    panels, parts = [], []
    for spread in dict.fromkeys(row["initial_spread"] for row in rows):
        group = [row for row in rows if row["initial_spread"] == spread]
        learned = agent_series(group, chain_length, learned_at)
        # An agent that dithers is not judged by its training episodes, and its training ends when it is judged.
        first = agent_series([r for r in group if not int(r["dithers"])], chain_length, _first_optimal_episode)
        panels.append(Panel(f"initial spread {float(spread):g}", "scrambled chain length N", learned))
        parts += [
            f"Initial spread {float(spread):g}, 100th optimal episode (dqn: evaluation without dithering).",
            "",
        ]
        parts += [times_table("N", learned), ""]
        parts += [f"Initial spread {float(spread):g}, first optimal training episode.", ""]
        parts += [times_table("N", first), ""]
    cap = episode_limit(rows)
    save_times_to_learn(stem, "The same networks, explored in four ways", panels, cap=cap)
    return "\n".join(["Medians of seeds (seeds that got there, where not all did).", "", *parts]).strip()


EXPERIMENT = learning_experiment(
    name="chain-shallow",
    summary="the same networks explored by voting, Thompson sampling and dithering",
    sweep=sweep,
    plot=plot,
)
