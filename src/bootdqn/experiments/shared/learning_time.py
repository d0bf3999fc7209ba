"""Measures when agents learn: trainings that end as soon as their answer is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.analysis.stats import consecutive_episodes_to_learn, episodes_to_learn
from bootdqn.experiments.engine.cost import estimate_cost
from bootdqn.experiments.engine.experiment import Context, Experiment, ResultRow
from bootdqn.loops.compiled import EpisodeMetrics
from bootdqn.loops.seeds import Chunk
from bootdqn.runs.config import RunConfig
from bootdqn.runs.seed_results import make_seed_loop


class History(NamedTuple):
    """Which episodes of one seed were optimal; arrays [E] of the episodes so far."""

    training: NDArray[np.bool_]
    """Whether the training episode was optimal, which the behaviour policy played."""
    greedy: NDArray[np.bool_]
    """Whether the evaluation after it was optimal, which the vote of the heads played without dithering."""


def _describe(config: RunConfig) -> ResultRow:
    """Return the columns of `results.csv` that say what was trained."""
    return {
        "env": config.env,
        "agent": config.agent_name,
        "dithers": int(config.dithers),
        "num_heads": config.deep.num_heads,
        "mask_probability": config.deep.mask_probability,
        "initial_spread": config.deep.initial_spread,
        "learning_rate": config.deep.learning_rate,
        "max_episodes": config.episodes,
    }


def train_until(
    config: RunConfig, context: Context, decided_at: Callable[[History], int | None]
) -> dict[int, History] | None:
    """Train every seed until its history decides the answer, or to the last episode.

    Args:
        config: the configuration of the training.
        context: the context of the trial.
        decided_at: takes the history of a seed and returns the number of the episode after which further episodes
            would change nothing, or None if the answer is still open.

    Returns:
        The history of every seed up to that episode, or None if the trial was told to stop.
    """
    loop = make_seed_loop(config)
    empty = np.zeros(0, bool)
    histories = dict.fromkeys(config.seeds, History(empty, empty))
    ends: dict[int, int] = {}

    def watch(chunk: Chunk[EpisodeMetrics]) -> bool:
        for row, seed in enumerate(chunk.seeds):
            if seed in ends:
                continue
            flags = chunk.metrics.optimal[row], chunk.metrics.greedy_optimal[row]
            history = History(*(np.concatenate(pair) for pair in zip(histories[seed], flags, strict=True)))
            end = decided_at(history)
            if end is not None:
                ends[seed] = end
                history = History(*(values[:end] for values in history))
            loop.require_finite_chunk(chunk, seed, end)
            histories[seed] = history
        shares = [1.0 if s in ends else len(h.training) / config.episodes for s, h in histories.items()]
        context.report(sum(shares) / len(shares))
        return ends.keys() >= set(chunk.seeds)

    for _ in loop.chunks(context.should_stop, watch, context.pool):
        pass
    complete = all(seed in ends or len(h.training) == config.episodes for seed, h in histories.items())
    return histories if complete else None


def measure_learning(config: RunConfig, context: Context) -> list[ResultRow] | None:
    """Run one trial, and measure by every definition when each seed learned the problem.

    Columns (times are empty if the event did not happen within `max_episodes`):
        seed: the seed.
        episodes_to_learn: the 100th optimal training episode, which is the paper's definition.
        greedy_episodes_to_learn: the 100th optimal evaluation by vote without dithering, one per episode.
        consecutive_greedy_episodes: the end of the first 100 consecutive evaluations that were all optimal.
        first_optimal_episode: the first optimal training episode.
        episodes: the number of episodes until the agent could be judged, or all if it did not learn.
    """

    def decided_at(history: History) -> int | None:
        times = [consecutive_episodes_to_learn(history.greedy)]
        if not config.dithers:  # an agent that dithers is not judged by its training episodes
            times.append(episodes_to_learn(history.training))
        known = [time for time in times if time is not None]
        return max(known) if len(known) == len(times) else None

    histories = train_until(config, context, decided_at)
    if histories is None:
        return None
    return [
        {
            "seed": seed,
            "episodes_to_learn": episodes_to_learn(history.training),
            "greedy_episodes_to_learn": episodes_to_learn(history.greedy),
            "consecutive_greedy_episodes": consecutive_episodes_to_learn(history.greedy),
            "first_optimal_episode": episodes_to_learn(history.training, 1),
            "episodes": len(history.training),
        }
        for seed, history in histories.items()
    ]


learning_experiment = partial(Experiment, run=measure_learning, describe=_describe, cost=estimate_cost)
"""Makes an experiment whose trials measure times to learn, from the other fields of `Experiment`."""
