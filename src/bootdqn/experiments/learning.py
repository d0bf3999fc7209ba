"""What experiments that train agents share: trials that end once their answer is known, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.bench import gemm_gflops, update_flops
from bootdqn.envs.catalog import make_env
from bootdqn.experiments.runner import Context, Cost, CsvRow, Experiment, Preset, Row, Run, Trial
from bootdqn.loops.compiled import CompiledTraining, EpisodeMetrics
from bootdqn.loops.groups import Chunk, available_cores
from bootdqn.stats import consecutive_episodes_to_learn, episodes_to_learn
from bootdqn.training import TrainConfig, require_finite

_SHARE_OF_PEAK = 0.3
"""Of the rate of a large matrix product, what training reaches at least (`bootdqn bench chain`)."""
_SECONDS_PER_STEP = 5e-5
"""What a step costs however small the networks."""
_FLOPS_PER_TABLE_WEIGHT = 30
"""What the optimizer's pass over a table costs, memory-bound as it is, in the arithmetic of the rest."""
_COMPILE_SECONDS = 5.0


class History(NamedTuple):
    """Which episodes of one seed were optimal [E]."""

    training: NDArray[np.bool_]
    """By the behaviour policy."""
    greedy: NDArray[np.bool_]
    """By vote, without dithering, after each."""


def describe_training(config: TrainConfig) -> Row:
    """What was trained, as columns of `results.csv`."""
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
    config: TrainConfig, context: Context, decided_at: Callable[[History], int | None]
) -> dict[int, History] | None:
    """Train every seed until what it has done decides the answer, or to the last episode.

    Args:
        config: of the training.
        context: the sweep's.
        decided_at: the number of the episode after which more would change nothing, or None as yet.

    Returns:
        The history of every seed up to that episode, or None when told to stop.
    """
    training = CompiledTraining(make_env(config.env), config.deep, seeds=config.seeds, episodes=config.episodes)
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
            require_finite(chunk, config, seed=seed, end=end)
            histories[seed] = history
        shares = [1.0 if s in ends else len(h.training) / config.episodes for s, h in histories.items()]
        context.report(sum(shares) / len(shares))
        return ends.keys() >= set(chunk.seeds)

    for _ in training.chunks(context.should_stop, watch, context.pool):
        pass
    complete = all(seed in ends or len(h.training) == config.episodes for seed, h in histories.items())
    return histories if complete else None


def measure_learning(config: TrainConfig, context: Context) -> list[Row] | None:
    """Run one trial: when was the problem learned, by every definition, in every seed.

    Columns, of which those that are times are empty where it did not come to that within `episodes`:
        seed
        episodes_to_learn: the 100th optimal training episode, the paper's definition.
        greedy_episodes_to_learn: the same for evaluations by vote without dithering, one after every episode.
        consecutive_greedy_episodes: the end of the first 100 such evaluations in a row that were optimal.
        first_optimal_episode: of training.
        episodes: how many it took to know by what it is judged; all there were where something was not learned.
    """

    def decided_at(history: History) -> int | None:
        times = [consecutive_episodes_to_learn(history.greedy)]
        if not config.dithers:  # else it is not judged by its training episodes
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


def training_cost(config: TrainConfig) -> Cost:
    """What a training takes if it goes on to its last episode."""
    env = make_env(config.env)
    training = CompiledTraining(env, config.deep, seeds=config.seeds, episodes=config.episodes)
    size = env.encoding.size
    if env.encoding.kind == "one_hot":  # looked up, not multiplied; but the optimizer goes through the whole table
        flops = update_flops(config.deep, 0, env.num_actions)
        flops += _FLOPS_PER_TABLE_WEIGHT * config.deep.num_heads * size * config.deep.hidden[0]
    else:
        flops = update_flops(config.deep, size, env.num_actions)
    flops /= config.deep.learning_period_steps
    rate = _SHARE_OF_PEAK * _peak_gflops() * 1e9 / available_cores()
    steps = config.episodes * env.horizon
    seconds = _SECONDS_PER_STEP + flops / rate
    return Cost(
        core_seconds=_COMPILE_SECONDS + config.num_seeds * steps * seconds,
        least_seconds=_COMPILE_SECONDS + steps * seconds,
        bytes=training.memory_bytes(),
        threads=config.num_seeds,
    )


_peak_gflops = cache(gemm_gflops)


def learning_experiment(
    *,
    name: str,
    summary: str,
    sweep: Callable[[Preset], list[Trial]],
    plot: Callable[[list[CsvRow], Path], str],
    run: Run = measure_learning,
) -> Experiment:
    """An experiment whose trials are trainings; fields as in `Experiment`."""
    return Experiment(
        name=name,
        summary=summary,
        sweep=sweep,
        run=run,
        describe=describe_training,
        cost=training_cost,
        plot=plot,
    )
