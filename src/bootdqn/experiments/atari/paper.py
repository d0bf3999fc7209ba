"""The paper's own numbers on Atari (tables 1 and 2 of its appendix D)."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple

PAPER_FRAMES = 200_000_000
"""Of every run of the paper."""
EPOCH_FRAMES = 200_000
"""Of an epoch of AUC-100: a hundred are the 20M frames of table 2."""


class Scores(NamedTuple):
    """What the best evaluation of an agent scored in one game (table 1)."""

    random: float
    human: float
    boot: float
    ddqn: float
    """The paper's DQN, with the double-Q target."""
    nature: float
    """DQN of Mnih et al. (2015)."""


class Areas(NamedTuple):
    """AUC-100 of agents in one game (table 2)."""

    stadie_dqn: float
    """DQN of Stadie et al. (2015)."""
    dynamic_ae: float
    """Their best method."""
    dqn: float
    boot: float
    boot_plus: float


def _read(name: str) -> dict[str, list[float]]:
    """A table by the first column."""
    lines = (files("bootdqn.experiments.atari") / name).read_text(encoding="utf-8").splitlines()
    return {game: [float(cell) for cell in cells] for game, *cells in csv.reader(lines[1:])}


PAPER_SCORES: dict[str, Scores] = {game: Scores(*cells) for game, cells in _read("table1.csv").items()}
"""Table 1, by the title of the game."""
_AREAS = {game: Areas(*cells) for game, cells in _read("table2.csv").items()}
PRINTED_AVERAGE = _AREAS.pop("Average")
"""Last row of table 2, which is not the mean of the others for `dqn` and `boot`."""
PAPER_AREAS: dict[str, Areas] = _AREAS
"""Table 2, by the title of the game."""
