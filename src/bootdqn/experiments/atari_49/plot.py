"""Table 1 and the figures over all games: best scores, cumulative rewards and frames to a human's score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bootdqn.experiments.atari.paper import PAPER_SCORES
from bootdqn.experiments.atari.tables import (
    PAPER_AGENTS,
    Run,
    by_agent,
    by_game,
    count_sentence,
    footer,
    gather_runs,
    length_sentence,
    millions,
    missing_sentence,
    spread,
    table,
)
from bootdqn.experiments.runner import CsvRow
from bootdqn.figures import AGENT_COLOURS
from bootdqn.score_figures import Game, Profile, ratio_text, save_games
from bootdqn.stats import (
    Interval,
    Strata,
    frames_to_reach,
    iqm,
    mean_of_games,
    median_of_games,
    normalised,
    performance_profile,
    stratified_bootstrap,
)

_THRESHOLDS = np.geomspace(0.01, 100, 241)
_SEED = 0
"""Of the bootstrap."""
_PAPER_NAMES = {"boot": "the paper's boot", "ddqn": "the paper's DDQN"}

Groups = Mapping[str, Mapping[str, Sequence[Run]]]
"""Runs by agent and game."""


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Ratios a bar a game and frames to human as dots, above performance profiles; tables of all of it."""
    runs = gather_runs(rows)
    groups: Groups = {agent: by_game(group) for agent, group in by_agent(runs).items() if agent in PAPER_AGENTS}
    games = {title: _game(groups, title) for title in PAPER_SCORES}
    common = [title for title in PAPER_SCORES if groups and all(title in group for group in groups.values())]
    save_games(
        stem,
        "Bootstrapped DQN and DQN on 49 Atari games",
        sorted(games.values(), key=lambda game: -game.paper_best),
        thresholds=_THRESHOLDS,
        profiles=_profiles(groups, common) if common else [],
        footer=footer(rows, runs),
    )
    parts = [
        f"{length_sentence(runs)} {count_sentence(runs)}",
        missing_sentence(PAPER_SCORES, by_game(runs)),
        "Best evaluation by vote; ours are means over seeds (least to largest). The paper's DDQN is its dqn.",
        _scores_table(groups),
        "boot over dqn, above random play: best scores, ours and the paper's, and our cumulative rewards. "
        "Infinite where dqn is not above random play, a dash where boot is not either, or for want of runs. "
        "Frames to the first evaluation with a human's score: median of seeds (seeds that got there, where not "
        "all did).",
        _ratios_table(list(games.values())),
        _paper_sentence(),
    ]
    if common:
        parts += [
            f"Human-normalised best scores over the {len(common)} games that all our agents have, with 95% "
            "intervals of a bootstrap over seeds within games where every game has two or more.",
            _aggregates_table(groups, common),
        ]
    return "\n\n".join(parts)


def _game(groups: Groups, title: str) -> Game:
    """How boot compares with dqn in one game."""
    known = PAPER_SCORES[title]
    in_game = {agent: group[title] for agent, group in groups.items() if title in group}
    best = cumulative = float("nan")
    if in_game.keys() >= PAPER_AGENTS.keys():
        boot, dqn = in_game["boot"], in_game["dqn"]
        best = _relative(_mean(run.best for run in boot), _mean(run.best for run in dqn), known.random)
        cumulative = _relative(_mean(map(_mean_above_random, boot)), _mean(map(_mean_above_random, dqn)), 0.0)
    reached = {
        agent: [frames_to_reach(run.frames, run.scores, known.human) for run in group]
        for agent, group in in_game.items()
    }
    return Game(title, best, _relative(known.boot, known.ddqn, known.random), cumulative, reached)


def _relative(boot: float, dqn: float, random: float) -> float:
    """How far boot is above random play, in units of how far dqn is; infinite or NaN where dqn is not."""
    if dqn > random:
        return float(normalised(boot, random, dqn))
    return float("inf") if boot > random else float("nan")


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([*values]))


def _mean_above_random(run: Run) -> float:
    """Cumulative reward above random play for every frame."""
    return float(run.cumulative(above_random=True)[-1]) / int(run.frames[-1])


def _normalise(title: str, scores: Sequence[float]) -> NDArray[np.float64]:
    """Scores in one game, on the scale from random play to a human."""
    known = PAPER_SCORES[title]
    return normalised(scores, known.random, known.human)


def _strata(groups: Groups, titles: Sequence[str]) -> dict[str, Strata]:
    """Human-normalised best scores of our agents in some games."""
    return {
        agent: [_normalise(title, [run.best for run in group[title]]) for title in titles]
        for agent, group in groups.items()
    }


def _paper_strata(titles: Sequence[str]) -> dict[str, Strata]:
    """The same of the paper's."""
    return {
        name: [_normalise(title, [getattr(PAPER_SCORES[title], column)]) for title in titles]
        for column, name in _PAPER_NAMES.items()
    }


def _profiles(groups: Groups, titles: Sequence[str]) -> list[Profile]:
    """Of our agents and the paper's in some games."""
    rng = np.random.default_rng(_SEED)
    named = [(f"{agent}, ours", agent, "-", strata) for agent, strata in _strata(groups, titles).items()]
    named += [
        (f"{name}, same games", agent, "--", strata)
        for agent, (name, strata) in zip(PAPER_AGENTS, _paper_strata(titles).items(), strict=True)
    ]
    return [
        Profile(label, AGENT_COLOURS[agent], style, performance_profile(rng, strata, _THRESHOLDS))
        for label, agent, style, strata in named
    ]


def _scores_table(groups: Groups) -> str:
    """Table 1."""
    lines = [
        [
            title,
            f"{known.random:.1f}",
            f"{known.human:.1f}",
            *(spread([run.best for run in groups.get(agent, {}).get(title, [])]) for agent in PAPER_AGENTS),
            f"{known.boot:.1f}",
            f"{known.ddqn:.1f}",
        ]
        for title, known in PAPER_SCORES.items()
    ]
    ours = [f"{agent}, ours" for agent in PAPER_AGENTS]
    return table(["game", "random", "human", *ours, "boot, paper", "DDQN, paper"], lines)


def _ratios_table(games: Sequence[Game]) -> str:
    """What the figure shows, in numbers."""
    lines = [
        [
            game.title,
            *(ratio_text(ratio) for ratio in (game.best, game.paper_best, game.cumulative)),
            *(_frames_cell(game.frames_to_human.get(agent, [])) for agent in PAPER_AGENTS),
        ]
        for game in games
    ]
    frames = [f"{agent}, frames to human" for agent in PAPER_AGENTS]
    return table(["game", "best, ours", "best, paper", "cumulative, ours", *frames], lines)


def _frames_cell(frames: Sequence[int | None]) -> str:
    """Median over seeds; "never" where half of them or more did not get there."""
    if not frames:
        return ""
    median = np.median([np.inf if count is None else count for count in frames])
    text = millions(float(median)) if np.isfinite(median) else "never"
    reached = sum(count is not None for count in frames)
    return text if reached in (0, len(frames)) else f"{text} ({reached}/{len(frames)})"


def _aggregates_table(groups: Groups, titles: Sequence[str]) -> str:
    """Our agents and the paper's in the games that we have, and the paper's in all."""
    rng = np.random.default_rng(_SEED)
    lines = [(name, strata) for name, strata in (_strata(groups, titles) | _paper_strata(titles)).items()]
    if len(titles) < len(PAPER_SCORES):
        lines += [(f"{name}, all games", strata) for name, strata in _paper_strata(list(PAPER_SCORES)).items()]
    return table(
        ["agent", "games", "median", "IQM", "mean", "runs at human level"],
        [
            [
                name,
                str(len(strata)),
                *(
                    _interval_cell(stratified_bootstrap(rng, strata, f))
                    for f in (median_of_games, iqm, mean_of_games)
                ),
                f"{np.mean(np.concatenate([np.asarray(runs) for runs in strata]) >= 1):.0%}",
            ]
            for name, strata in lines
        ],
    )


def _interval_cell(interval: Interval) -> str:
    text = f"{interval.estimate:.3f}"
    return text if np.isnan(interval.low) else f"{text} ({interval.low:.3f} to {interval.high:.3f})"


def _paper_sentence() -> str:
    """What table 1 says, whatever the text does."""
    boot, ddqn = (np.array([getattr(known, name) for known in PAPER_SCORES.values()]) for name in _PAPER_NAMES)
    ratios = np.array([_relative(known.boot, known.ddqn, known.random) for known in PAPER_SCORES.values()])
    return (
        f"In the paper's table boot is above DDQN in {np.sum(boot > ddqn)} games, below in {np.sum(boot < ddqn)} "
        f"and equal in {np.sum(boot == ddqn)}; the median of its ratios above, where finite, is "
        f"{np.median(ratios[np.isfinite(ratios)]):.3f}."
    )
