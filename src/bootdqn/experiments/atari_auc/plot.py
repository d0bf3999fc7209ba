"""Table 2: areas under learning curves, the paper's and ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bootdqn.experiments.atari.paper import EPOCH_FRAMES, PAPER_AREAS, PRINTED_AVERAGE
from bootdqn.experiments.atari.tables import (
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
from bootdqn.experiments.runner import CsvRow
from bootdqn.figures import AGENT_COLOURS
from bootdqn.score_figures import Dots, save_dots
from bootdqn.stats import AUC_EPOCHS

_COLUMNS = {
    "stadie_dqn": ("DQN (Stadie et al.)", "#7F7F7F", "v"),
    "dynamic_ae": ("Dynamic AE (Stadie et al.)", "#E69F00", "^"),
    "dqn": ("dqn", AGENT_COLOURS["dqn"], "o"),
    "boot": ("boot", AGENT_COLOURS["boot"], "s"),
    "boot_plus": ("boot+", AGENT_COLOURS["boot+"], "D"),
}
"""Name, colour and marker of the paper's columns."""
_AGENTS = {"dqn": "dqn", "boot": "boot", "boot+": "boot_plus"}
"""Agents that the table has, and their columns."""


Values = dict[str, dict[str, list[float]]]
"""By agent and game, the areas of every seed."""


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Areas as dots, the paper's and ours; table 2 with our columns beside it."""
    runs = gather_runs(rows)
    areas: Values = {agent: {} for agent in by_agent(runs) if agent in _AGENTS}
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


def _table(areas: Values) -> str:
    """Table 2, our means over seeds beside it, and averages."""
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
    """Of the paper's columns."""
    return [f"{mean:.4f}" for mean in np.mean([PAPER_AREAS[game] for game in games], axis=0)]


def _averages_sentence() -> str:
    """Where the paper's averages are not those of its rows."""
    means = np.mean(list(PAPER_AREAS.values()), axis=0)
    wrong = [
        f"{name} {printed:.2f} where its rows have {mean:.4f}"
        for (name, _, _), printed, mean in zip(_COLUMNS.values(), PRINTED_AVERAGE, means, strict=True)
        if round(mean, 2) != printed
    ]
    return f"The averages that the paper prints are not all those of its rows: {', '.join(wrong)}."
