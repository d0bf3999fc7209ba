"""The paper's own numbers on Atari (tables 1 and 2 of its appendix D)."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple

PAPER_FRAMES = 200_000_000
"""The number of frames of every run of the paper."""
EPOCH_FRAMES = 200_000
"""The number of frames of an epoch of AUC-100; a hundred epochs are the 20M frames of table 2."""


class Scores(NamedTuple):
    """The scores of the best evaluations of agents in one game (table 1)."""

    random: float
    """Random play."""
    human: float
    """A human."""
    boot: float
    """The paper's bootstrapped DQN."""
    ddqn: float
    """The paper's DQN, with the double-Q target."""
    nature: float
    """DQN of Mnih et al. (2015)."""


class Areas(NamedTuple):
    """The areas under learning curves (AUC-100) of agents in one game (table 2)."""

    stadie_dqn: float
    """DQN of Stadie et al. (2015)."""
    dynamic_ae: float
    """The best method of Stadie et al. (2015)."""
    dqn: float
    """The paper's DQN."""
    boot: float
    """Bootstrapped DQN, which divides the trunk's gradient by the number of heads."""
    boot_plus: float
    """Bootstrapped DQN that does not."""


def _read(name: str) -> dict[str, list[float]]:
    """Read a table of numbers by the titles in its first column."""
    lines = (files("bootdqn.experiments.shared") / name).read_text(encoding="utf-8").splitlines()
    return {game: [float(cell) for cell in cells] for game, *cells in csv.reader(lines[1:])}


PAPER_SCORES: dict[str, Scores] = {game: Scores(*cells) for game, cells in _read("paper_table1.csv").items()}
"""Table 1, by the title of the game."""
_AREAS = {game: Areas(*cells) for game, cells in _read("paper_table2.csv").items()}
PRINTED_AVERAGE = _AREAS.pop("Average")
"""The last row of table 2, which for `dqn` and `boot` is not the mean of the other rows."""
PAPER_AREAS: dict[str, Areas] = _AREAS
"""Table 2, by the title of the game."""
