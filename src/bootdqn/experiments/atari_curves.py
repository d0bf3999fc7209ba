"""Learning curves of bootstrapped DQN and DQN in single games (paper, section 6.2)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.atari_runs import atari_experiment, atari_trial
from bootdqn.experiments.shared.atari_tables import (
    CURVE_NOTE,
    PAPER_AGENTS,
    SCORE_LABEL,
    SPREAD_SENTENCE,
    AtariRun,
    by_agent,
    by_game,
    footer,
    gather_runs,
    known_levels,
    length_sentence,
    score_curve,
    spread,
    table,
)
from bootdqn.experiments.shared.paper_scores import PAPER_SCORES
from bootdqn.plots.scores import CurvePanel, save_curves
from bootdqn.plots.style import AGENT_COLOURS

_GAMES: dict[Preset, tuple[str, ...]] = {
    "smoke": ("breakout",),
    "quick": ("freeway", "pong"),
    "paper": ("amidar", "beam_rider", "breakout", "freeway", "frostbite", "montezuma_revenge", "pong", "qbert"),
}
"""The paper's figure is not available; these are the games that its text names, and two more."""
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}
_MAX_COLUMNS = 5


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of every agent in every game, the first seed of all before the second of any."""
    return [
        atari_trial(game, agent, preset, seed)
        for seed in range(_NUM_SEEDS[preset])
        for game in _GAMES[preset]
        for agent in ("boot", "dqn")
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw scores over frames, with a panel per game and a line per agent; return a table."""
    runs = gather_runs(rows)
    games = by_game(runs)
    panels = [
        CurvePanel(
            game,
            SCORE_LABEL,
            [score_curve(agent, AGENT_COLOURS[agent], group) for agent, group in by_agent(in_game).items()],
            known_levels(game),
        )
        for game, in_game in games.items()
    ]
    columns = min(math.ceil(math.sqrt(len(panels))), _MAX_COLUMNS)
    save_curves(stem, "Learning curves on Atari", panels, columns=columns, footer=footer(rows, runs, CURVE_NOTE))
    heading = [
        "game",
        "agent",
        "seeds",
        "best",
        "final",
        "final, mean of heads",
        "paper's best",
        "human",
        "random",
    ]
    lines = [_line(group) for in_game in games.values() for group in by_agent(in_game).values()]
    return "\n\n".join(
        [
            f"{length_sentence(runs)} {SPREAD_SENTENCE} The last evaluation was also played by every head "
            "alone: the mean of those. The paper's dqn is its DDQN.",
            table(heading, lines, texts=2),
        ]
    )


def _line(runs: list[AtariRun]) -> list[str]:
    """Make the line of the table for the runs of one agent in one game."""
    game, agent = runs[0].game, runs[0].agent
    known = PAPER_SCORES[game]
    return [
        game,
        agent,
        str(len(runs)),
        spread([run.best for run in runs]),
        spread([run.final for run in runs]),
        spread([float(np.mean(run.head_scores)) for run in runs if len(run.head_scores)]),
        f"{getattr(known, PAPER_AGENTS[agent]):.1f}" if agent in PAPER_AGENTS else "",
        f"{known.human:.1f}",
        f"{known.random:.1f}",
    ]


EXPERIMENT = atari_experiment(
    name="atari-curves",
    summary="learning curves on Atari games, boot against dqn",
    sweep=sweep,
    plot=plot,
)
