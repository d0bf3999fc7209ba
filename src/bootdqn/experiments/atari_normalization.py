"""Boot-DQN against Boot-DQN+, which does not divide the trunk's gradient by K (paper, appendix D)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.atari_runs import atari_experiment, atari_trial
from bootdqn.experiments.shared.atari_tables import (
    CUMULATIVE_LABEL,
    CURVE_NOTE,
    SCORE_LABEL,
    SPREAD_SENTENCE,
    AtariRun,
    by_agent,
    by_game,
    cumulative_curve,
    footer,
    gather_runs,
    known_levels,
    length_sentence,
    millions,
    paper_sentence,
    score_curve,
    spread,
    table,
)
from bootdqn.plots.scores import CurvePanel, save_curves
from bootdqn.plots.style import AGENT_COLOURS

_GAME: dict[Preset, str] = {"smoke": "breakout", "quick": "beam_rider", "paper": "beam_rider"}
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}
_LABELS = {"boot": "boot: divided by K", "boot+": "boot+: not divided"}


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of both agents on Beam Rider with every seed."""
    return [
        atari_trial(_GAME[preset], agent, preset, seed)
        for agent in ("boot", "boot+")
        for seed in range(_NUM_SEEDS[preset])
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw scores, and cumulative rewards over a tenth of the frames and over all, per agent; return a table."""
    runs = gather_runs(rows)
    panels, lines, tenths = [], [], []
    for game, in_game in by_game(runs).items():
        tenth = max(int(run.frames[-1]) for run in in_game) / 10
        groups = by_agent(in_game)
        named = [(_LABELS.get(agent, agent), AGENT_COLOURS[agent], group) for agent, group in groups.items()]
        panels += [
            CurvePanel(game, SCORE_LABEL, [score_curve(*curve) for curve in named], known_levels(game)),
            CurvePanel(
                f"the first {millions(tenth)} frames",
                CUMULATIVE_LABEL,
                [cumulative_curve(*curve, last_frame=tenth) for curve in named],
            ),
            CurvePanel("all frames", CUMULATIVE_LABEL, [cumulative_curve(*curve) for curve in named]),
        ]
        lines += [_line(group, tenth) for group in groups.values()]
        tenths.append(f"{millions(tenth)} in {game}")
    title = "Dividing the gradient that enters the trunk by K"
    save_curves(stem, title, panels, columns=3, footer=footer(rows, runs, CURVE_NOTE))
    heading = ["game", "agent", "seeds", "best score", "final score", "cumulative, early", "cumulative, all"]
    return "\n\n".join(
        [
            f"{length_sentence(runs)} {SPREAD_SENTENCE} Cumulative rewards are in score times million frames; "
            f"early is the first tenth of the frames ({', '.join(tenths)}).",
            table(heading, lines, texts=2),
            paper_sentence(by_game(runs)),
        ]
    )


def _line(runs: list[AtariRun], tenth: float) -> list[str]:
    """Make the line of the table for the runs of one agent in one game."""
    early = [np.interp(tenth, np.append(0, run.frames), np.append(0.0, run.cumulative())) for run in runs]
    return [
        runs[0].game,
        runs[0].agent,
        str(len(runs)),
        spread([run.best for run in runs]),
        spread([run.final for run in runs]),
        spread([float(total) / 1e6 for total in early]),
        spread([float(run.cumulative()[-1]) / 1e6 for run in runs]),
    ]


EXPERIMENT = atari_experiment(
    name="atari-normalization",
    summary="dividing the trunk's gradient by K, on Beam Rider",
    sweep=sweep,
    plot=plot,
)
