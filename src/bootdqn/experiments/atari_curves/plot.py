"""Learning curves of agents, game by game."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bootdqn.experiments.atari.paper import PAPER_SCORES
from bootdqn.experiments.atari.tables import (
    CURVE_NOTE,
    PAPER_AGENTS,
    SCORE_LABEL,
    SPREAD_SENTENCE,
    Run,
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
from bootdqn.experiments.runner import CsvRow
from bootdqn.figures import AGENT_COLOURS
from bootdqn.score_figures import CurvePanel, save_curves

_MAX_COLUMNS = 5


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Score over frames, a panel a game and a line an agent; a table."""
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


def _line(runs: list[Run]) -> list[str]:
    """Of the table: the runs of one agent in one game."""
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
