"""Turns rows of Atari sweeps into runs, curves, tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from bootdqn.analysis.stats import AUC_EPOCHS, auc, cumulative_reward
from bootdqn.envs.atari import GAMES
from bootdqn.experiments.engine.experiment import CsvRow
from bootdqn.experiments.shared.paper_scores import EPOCH_FRAMES, PAPER_FRAMES, PAPER_SCORES
from bootdqn.plots.scores import Curve, CurvePanel, Level, save_curves
from bootdqn.plots.style import AGENT_COLOURS

SCORE_LABEL = "score by vote"
CUMULATIVE_LABEL = "cumulative reward\n(score × million frames)"
PAPER_AGENTS = {"boot": "boot", "dqn": "ddqn"}
"""The columns of table 1 by the names of our agents; the paper's DQN has the double-Q target, and so has ours."""

Item = TypeVar("Item")
Number = TypeVar("Number", int, float)
Key = TypeVar("Key", bound=Hashable)


class AtariRun(NamedTuple):
    """The evaluations of one training with one seed."""

    game: str
    """The title of the game."""
    agent: str
    """The name of the agent."""
    heads: int
    """The number of heads K."""
    mask_probability: float
    """The probability p that a head learns from an episode."""
    seed: int
    """The seed of the training."""
    frames: NDArray[np.int_]
    """The number of frames before every evaluation [E], ascending."""
    scores: NDArray[np.float64]
    """The mean return of every evaluation by vote [E]."""
    head_scores: NDArray[np.float64]
    """The mean return of every single head in the last evaluation [K]; empty if heads were not evaluated."""

    @property
    def best(self) -> float:
        """The score of the best evaluation, which is what table 1 lists."""
        return float(self.scores.max())

    @property
    def final(self) -> float:
        """The score of the last evaluation."""
        return float(self.scores[-1])

    @property
    def auc_epochs(self) -> float:
        """The number of epochs of the area under the curve, which is below 100 if the run is shorter."""
        return min(AUC_EPOCHS, int(self.frames[-1]) / EPOCH_FRAMES)

    @property
    def auc(self) -> float:
        """AUC-100 or, if the run is shorter, the same over its own length."""
        return auc(self.frames / EPOCH_FRAMES, self.scores, PAPER_SCORES[self.game].nature, self.auc_epochs)

    def cumulative(self, *, above_random: bool = False) -> NDArray[np.float64]:
        """Return the cumulative reward after every evaluation [E], in score times frames."""
        return cumulative_reward(self.frames, self.scores, PAPER_SCORES[self.game].random if above_random else 0.0)


def gather_runs(rows: Iterable[CsvRow]) -> list[AtariRun]:
    """Gather rows into runs, in the order in which they appear."""
    runs = []
    for group in _group_by(rows, lambda row: (row["trial"], row["seed"])).values():
        votes = sorted((row for row in group if row["policy"] == "vote"), key=lambda row: int(row["frames"]))
        last = votes[-1]
        heads = [row for row in group if row["policy"].startswith("head") and row["step"] == last["step"]]
        runs.append(
            AtariRun(
                game=GAMES[last["game"]],
                agent=last["agent"],
                heads=int(last["heads"]),
                mask_probability=float(last["mask_probability"]),
                seed=int(last["seed"]),
                frames=np.array([int(row["frames"]) for row in votes]),
                scores=np.array([float(row["mean_return"]) for row in votes]),
                head_scores=np.array([float(row["mean_return"]) for row in heads]),
            )
        )
    return runs


def _group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by a key, in the order in which keys appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def by_game(runs: Iterable[AtariRun]) -> dict[str, list[AtariRun]]:
    """Group runs by the title of the game, in alphabetical order."""
    return dict(sorted(_group_by(runs, lambda run: run.game).items()))


def by_agent(runs: Iterable[AtariRun]) -> dict[str, list[AtariRun]]:
    """Group runs by the name of the agent, in the order of `AGENT_COLOURS`."""
    groups = _group_by(runs, lambda run: run.agent)
    return {agent: groups[agent] for agent in AGENT_COLOURS if agent in groups}


# Curves.


def score_curve(label: str, colour: str, runs: Sequence[AtariRun]) -> Curve:
    """Make a curve of scores over frames, with one line per seed."""
    return Curve(label, colour, [(run.frames, run.scores) for run in runs])


def cumulative_curve(label: str, colour: str, runs: Sequence[AtariRun], *, last_frame: float = np.inf) -> Curve:
    """Make a curve of cumulative rewards up to `last_frame`, in score times million frames; a line per seed."""
    lines = []
    for run in runs:
        frames, total = np.append(0, run.frames), np.append(0.0, run.cumulative()) / 1e6
        end = min(last_frame, frames[-1])
        shown = np.append(frames[frames < end], end)
        lines.append((shown, np.interp(shown, frames, total)))
    return Curve(label, colour, lines)


def known_levels(game: str) -> list[Level]:
    """Return the scores that a learning curve is compared with."""
    known = PAPER_SCORES[game]
    return [
        Level("random play", known.random, "#7F7F7F", ":"),
        Level("human", known.human, "black", "--"),
        Level("paper's boot", known.boot, AGENT_COLOURS["boot"], "-."),
        Level("paper's DDQN", known.ddqn, AGENT_COLOURS["dqn"], "-."),
    ]


def plot_variants(
    rows: Sequence[CsvRow], stem: Path, title: str, *, name: str, value: Callable[[AtariRun], float]
) -> str:
    """Draw scores and cumulative rewards of bootstrapped DQN for several values of a parameter; return a table.

    Args:
        rows: the rows of the sweep; agents other than `boot` have lines of their own.
        stem: the path of the figure without suffix.
        title: the title of the figure.
        name: the name of the parameter.
        value: returns the value of the parameter in a run.
    """
    runs = sorted(gather_runs(rows), key=lambda run: (run.agent != "boot", value(run)))
    variants = _group_by(runs, lambda run: f"{value(run):g}" if run.agent == "boot" else run.agent)
    shades = colormaps["viridis"](np.linspace(0.0, 0.9, len(variants)))
    colours = {
        variant: AGENT_COLOURS.get(variant, to_hex(shade)) for variant, shade in zip(variants, shades, strict=True)
    }
    panels, lines = [], []
    for game in by_game(runs):
        groups = {
            variant: in_game
            for variant, group in variants.items()
            if (in_game := [run for run in group if run.game == game])
        }
        labels = {variant: variant if variant in AGENT_COLOURS else f"{name} = {variant}" for variant in groups}
        scores = [score_curve(labels[v], colours[v], group) for v, group in groups.items()]
        totals = [cumulative_curve(labels[v], colours[v], group) for v, group in groups.items()]
        panels += [
            CurvePanel(game, SCORE_LABEL, scores, known_levels(game)),
            CurvePanel(game, CUMULATIVE_LABEL, totals),
        ]
        lines += [
            [
                game,
                variant,
                str(len(group)),
                spread([run.best for run in group]),
                spread([run.final for run in group]),
                spread([run.auc for run in group], 3),
            ]
            for variant, group in groups.items()
        ]
    save_curves(stem, title, panels, columns=2, footer=footer(rows, runs, CURVE_NOTE))
    return "\n\n".join(
        [
            f"{length_sentence(runs)} {SPREAD_SENTENCE} {auc_sentence(runs)}",
            table(["game", name, "seeds", "best score", "final score", "AUC"], lines, texts=2),
            paper_sentence(by_game(runs)),
        ]
    )


# Tables.


def table(heading: Sequence[str], lines: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """Make a Markdown table, whose first `texts` columns are words and whose other columns are numbers."""
    rules = ["---"] * texts + ["---:"] * (len(heading) - texts)
    return "\n".join(
        ["| " + " | ".join(heading) + " |", "|" + "|".join(rules) + "|"]
        + ["| " + " | ".join(line) + " |" for line in lines]
    )


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Format the mean over seeds, with the least and the largest if there are several; empty without any."""
    if not len(values):
        return ""
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def span(values: Sequence[Number], text: Callable[[Number], str]) -> str:
    """Format the least and the largest of some values, or the one value that they all have."""
    return " to ".join(dict.fromkeys(map(text, (min(values), max(values)))))


def millions(frames: float) -> str:
    """Format a number of frames in millions."""
    return f"{frames / 1e6:.3g}M"


# Sentences.

CURVE_NOTE = "Thick lines are means of seeds, thin ones seeds. The paper's scores are of its best evaluations."
SPREAD_SENTENCE = "Scores are by vote, and means over seeds (least to largest)."


def auc_sentence(runs: Sequence[AtariRun]) -> str:
    """Explain the area under the curve for runs of this length."""
    ends = [run.auc_epochs for run in runs]
    text = "AUC is the mean score over training as a share of Nature DQN's"
    if min(ends) == AUC_EPOCHS:
        return f"{text}: AUC-100, over the first {millions(AUC_EPOCHS * EPOCH_FRAMES)} frames."
    epochs = span(ends, lambda end: f"{end:.3g}")
    return f"{text}, over {epochs} epochs of {EPOCH_FRAMES:,} frames: not the {AUC_EPOCHS} of AUC-100."


def paper_sentence(games: Iterable[str]) -> str:
    """Quote the best scores of table 1 in some games."""
    known = {game: PAPER_SCORES[game] for game in games}
    return (
        "The paper's best scores: "
        + "; ".join(
            f"{game} {scores.boot:g} with boot (K = 10, p = 1) and {scores.ddqn:g} with DDQN"
            for game, scores in known.items()
        )
        + "."
    )


def length_sentence(runs: Sequence[AtariRun]) -> str:
    """Compare the length of the runs with that of the paper's."""
    frames = [int(run.frames[-1]) for run in runs]
    shares = span(frames, lambda count: f"{100 * count / PAPER_FRAMES:.3g}%")
    return f"Our runs have {span(frames, millions)} of the paper's {millions(PAPER_FRAMES)} frames ({shares})."


def count_sentence(runs: Sequence[AtariRun]) -> str:
    """Say how many runs there are, and how many seeds per configuration."""
    groups = _group_by(runs, lambda run: (run.game, run.agent, run.heads, run.mask_probability))
    seeds = span([len(group) for group in groups.values()], str)
    return f"{_plural(str(len(runs)), 'run')}, {_plural(seeds, 'seed')} a configuration."


def missing_sentence(games: Collection[str], have: Collection[str]) -> str:
    """Say of which of the paper's games there are no runs."""
    missing = [game for game in games if game not in have]
    if not missing:
        return f"There are runs of all {len(games)} games."
    return f"No runs of {len(missing)} of the {len(games)} games: {', '.join(missing)}."


def footer(rows: Sequence[CsvRow], runs: Sequence[AtariRun], note: str = "") -> list[str]:
    """Make the lines below a figure: how many runs there are, how long they are, and their protocol."""
    first = f"{count_sentence(runs)} {length_sentence(runs)} {note}".strip()
    return [first, *dict.fromkeys(row["protocol"] for row in rows)]


def _plural(number: str, noun: str) -> str:
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"
