"""The area under the learning curve within 20M frames, in 14 games (paper, table 2 in appendix D)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bootdqn.analysis.stats import AUC_EPOCHS
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.atari_runs import ACTION_REPEAT, atari_experiment, atari_trial
from bootdqn.experiments.shared.atari_tables import (
    auc_sentence,
    by_agent,
    count_sentence,
    footer,
    gather_runs,
    length_sentence,
    millions,
    missing_sentence,
    span,
    spread,
    table,
)
from bootdqn.experiments.shared.paper_scores import EPOCH_FRAMES, PAPER_AREAS, PRINTED_AVERAGE
from bootdqn.plots.scores import Dots, save_dots
from bootdqn.plots.style import AGENT_COLOURS

_GAMES = (
    *("alien", "asteroids", "bank_heist", "beam_rider", "bowling", "breakout", "enduro", "freeway", "frostbite"),
    *("montezuma_revenge", "pong", "qbert", "seaquest", "space_invaders"),
)
_NUM_EPOCHS = 100
_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}
_COLUMNS = {
    "stadie_dqn": ("DQN (Stadie et al.)", "#7F7F7F", "v"),
    "dynamic_ae": ("Dynamic AE (Stadie et al.)", "#E69F00", "^"),
    "dqn": ("dqn", AGENT_COLOURS["dqn"], "o"),
    "boot": ("boot", AGENT_COLOURS["boot"], "s"),
    "boot_plus": ("boot+", AGENT_COLOURS["boot+"], "D"),
}
"""The name, colour and marker of every column of the paper's table."""
_AGENTS = {"dqn": "dqn", "boot": "boot", "boot+": "boot_plus"}
"""The columns of the paper's table by the names of our agents."""
AreasByAgent = dict[str, dict[str, list[float]]]
"""The areas of every seed, by agent and title of the game."""


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of every agent in every game; the paper's preset has one evaluation per epoch."""
    games = ("breakout",) if preset == "smoke" else _GAMES
    epoch = EPOCH_FRAMES // ACTION_REPEAT
    schedule = {"steps": _NUM_EPOCHS * epoch, "evaluate_every_steps": epoch} if preset == "paper" else {}
    return [
        atari_trial(game, agent, preset, seed, schedule=schedule)
        for seed in range(_NUM_SEEDS[preset])
        for game in games
        for agent in ("dqn", "boot", "boot+")
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw the paper's areas and ours as dots; return table 2 with our columns beside it."""
    runs = gather_runs(rows)
    areas: AreasByAgent = {agent: {} for agent in by_agent(runs) if agent in _AGENTS}
    for run in runs:
        if run.agent in areas and run.game in PAPER_AREAS:
            areas[run.agent].setdefault(run.game, []).append(run.auc)
    paper = [
        Dots(name, colour, marker, False, {game: [getattr(row, column)] for game, row in PAPER_AREAS.items()})
        for column, (name, colour, marker) in _COLUMNS.items()
    ]
    ours = [Dots(agent, *_COLUMNS[_AGENTS[agent]][1:], True, values) for agent, values in areas.items()]
    complete = all(run.auc_epochs == AUC_EPOCHS for run in runs)
    length = span([run.auc_epochs * EPOCH_FRAMES for run in runs], millions)
    panels = {
        f"the paper: {millions(AUC_EPOCHS * EPOCH_FRAMES)} frames, AUC-100": paper,
        f"ours: {length} frames{'' if complete else ', not AUC-100'}; a dot a seed": ours,
    }
    save_dots(
        stem,
        "AUC: mean score over training as a share of Nature DQN's best score",
        list(PAPER_AREAS),
        panels,
        xlabel="AUC",
        share_x=complete,
        footer=footer(rows, runs),
    )
    return "\n\n".join(
        [
            f"{length_sentence(runs)} {count_sentence(runs)} {auc_sentence(runs)} The paper's are AUC-100.",
            _table(areas),
            _averages_sentence(),
            missing_sentence(PAPER_AREAS, {run.game for run in runs}),
        ]
    )


def _table(areas: AreasByAgent) -> str:
    """Make table 2 with our means over seeds beside it, and averages."""
    heading = [
        "game",
        *(f"{name}, paper" for name, _, _ in _COLUMNS.values()),
        *(f"{agent}, ours" for agent in areas),
    ]
    lines = [
        [game, *(f"{area:.2f}" for area in row), *(spread(values.get(game, []), 3) for values in areas.values())]
        for game, row in PAPER_AREAS.items()
    ]
    common = [game for game in PAPER_AREAS if areas and all(game in values for values in areas.values())]
    if len(common) < len(PAPER_AREAS):
        lines.append(["average of all rows", *_means(list(PAPER_AREAS)), *[""] * len(areas)])
    if common:
        ours = [f"{np.mean([np.mean(values[game]) for game in common]):.4f}" for values in areas.values()]
        name = "all rows" if len(common) == len(PAPER_AREAS) else f"the {len(common)} with all our agents"
        lines.append([f"average of {name}", *_means(common), *ours])
    lines.append(["average as printed", *(f"{area:.2f}" for area in PRINTED_AVERAGE), *[""] * len(areas)])
    return table(heading, lines)


def _means(games: Sequence[str]) -> list[str]:
    """Format the mean over some games of every column of the paper's table."""
    return [f"{mean:.4f}" for mean in np.mean([PAPER_AREAS[game] for game in games], axis=0)]


def _averages_sentence() -> str:
    """Say which averages in the paper's table are not those of its rows."""
    means = np.mean(list(PAPER_AREAS.values()), axis=0)
    wrong = [
        f"{name} {printed:.2f} where its rows have {mean:.4f}"
        for (name, _, _), printed, mean in zip(_COLUMNS.values(), PRINTED_AVERAGE, means, strict=True)
        if round(mean, 2) != printed
    ]
    return f"The averages that the paper prints are not all those of its rows: {', '.join(wrong)}."


EXPERIMENT = atari_experiment(
    name="atari-auc",
    summary="area under the learning curve in 20M frames, 14 games",
    sweep=sweep,
    plot=plot,
)
