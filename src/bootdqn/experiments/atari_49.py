"""Best scores, frames to human level and cumulative rewards in 49 games (paper, section 6 and appendix D)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bootdqn.analysis.stats import (
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
from bootdqn.envs.atari import GAMES
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.atari_runs import atari_experiment, atari_trial
from bootdqn.experiments.shared.atari_tables import (
    PAPER_AGENTS,
    AtariRun,
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
from bootdqn.experiments.shared.paper_scores import PAPER_SCORES
from bootdqn.plots.scores import Game, Profile, ratio_text, save_games
from bootdqn.plots.style import AGENT_COLOURS

_NUM_SEEDS: dict[Preset, int] = {"smoke": 1, "quick": 2, "paper": 3}
_THRESHOLDS = np.geomspace(0.01, 100, 241)
_SEED = 0
"""The seed of the statistical bootstrap."""
_PAPER_NAMES = {"boot": "the paper's boot", "ddqn": "the paper's DDQN"}
RunsByAgent = Mapping[str, Mapping[str, Sequence[AtariRun]]]
"""Runs by agent and title of the game."""


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of boot and dqn in every game, the first seed of all before the second of any."""
    games = ("breakout",) if preset == "smoke" else tuple(GAMES)
    return [
        atari_trial(game, agent, preset, seed)
        for seed in range(_NUM_SEEDS[preset])
        for game in games
        for agent in ("boot", "dqn")
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw ratios and frames to human level per game above performance profiles; return tables of all of it."""
    runs = gather_runs(rows)
    groups: RunsByAgent = {
        agent: by_game(group) for agent, group in by_agent(runs).items() if agent in PAPER_AGENTS
    }
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


def _game(groups: RunsByAgent, title: str) -> Game:
    """Compare boot with dqn in one game."""
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
    """Return how far boot is above random play relative to dqn; infinite or NaN if dqn is not above it."""
    if dqn > random:
        return float(normalised(boot, random, dqn))
    return float("inf") if boot > random else float("nan")


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([*values]))


def _mean_above_random(run: AtariRun) -> float:
    """Return the cumulative reward above random play per frame."""
    return float(run.cumulative(above_random=True)[-1]) / int(run.frames[-1])


def _normalise(title: str, scores: Sequence[float]) -> NDArray[np.float64]:
    """Normalise scores in one game so that random play has 0 and a human has 1."""
    known = PAPER_SCORES[title]
    return normalised(scores, known.random, known.human)


def _strata(groups: RunsByAgent, titles: Sequence[str]) -> dict[str, Strata]:
    """Return the human-normalised best scores of our agents, per game."""
    return {
        agent: [_normalise(title, [run.best for run in group[title]]) for title in titles]
        for agent, group in groups.items()
    }


def _paper_strata(titles: Sequence[str]) -> dict[str, Strata]:
    """Return the human-normalised best scores of the paper's agents, per game."""
    return {
        name: [_normalise(title, [getattr(PAPER_SCORES[title], column)]) for title in titles]
        for column, name in _PAPER_NAMES.items()
    }


def _profiles(groups: RunsByAgent, titles: Sequence[str]) -> list[Profile]:
    """Return the performance profiles of our agents and of the paper's, over some games."""
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


def _scores_table(groups: RunsByAgent) -> str:
    """Make table 1 of the paper with our scores beside it."""
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
    """Make a table of the ratios and frames that the figure shows."""
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
    """Format the median over seeds, which is "never" if half of them or more did not reach human level."""
    if not frames:
        return ""
    median = np.median([np.inf if count is None else count for count in frames])
    text = millions(float(median)) if np.isfinite(median) else "never"
    reached = sum(count is not None for count in frames)
    return text if reached in (0, len(frames)) else f"{text} ({reached}/{len(frames)})"


def _aggregates_table(groups: RunsByAgent, titles: Sequence[str]) -> str:
    """Make a table of aggregate scores: of all agents in the games that we ran, and of the paper's in all."""
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
    """Count in how many games of the paper's table 1 boot is better than DDQN."""
    boot, ddqn = (np.array([getattr(known, name) for known in PAPER_SCORES.values()]) for name in _PAPER_NAMES)
    ratios = np.array([_relative(known.boot, known.ddqn, known.random) for known in PAPER_SCORES.values()])
    return (
        f"In the paper's table boot is above DDQN in {np.sum(boot > ddqn)} games, below in {np.sum(boot < ddqn)} "
        f"and equal in {np.sum(boot == ddqn)}; the median of its ratios above, where finite, is "
        f"{np.median(ratios[np.isfinite(ratios)]):.3f}."
    )


EXPERIMENT = atari_experiment(
    name="atari-49",
    summary="best scores, frames to human level and cumulative rewards over 49 games",
    sweep=sweep,
    plot=plot,
)
