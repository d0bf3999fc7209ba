"""What experiments that train agents share: trials that end once their answer is known, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.bench import gemm_gflops, update_flops
from bootdqn.envs.catalog import make_env
from bootdqn.experiments.runner import Context, Cost, Row
from bootdqn.loops.compiled import Chunk, CompiledTraining, available_cores
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


def train_until(
    config: TrainConfig, context: Context, is_decided: Callable[[History], bool]
) -> dict[int, History] | None:
    """Train every seed until what it has done decides the answer, or to the last episode.

    Args:
        config: of the training.
        context: the sweep's.
        is_decided: whether more episodes would change nothing.

    Returns:
        The history of every seed (an unspecified number of episodes longer than was needed), or None when told
        to stop.
    """
    training = CompiledTraining(make_env(config.env), config.agent, seeds=config.seeds, episodes=config.episodes)
    empty = np.zeros(0, bool)
    histories = dict.fromkeys(config.seeds, History(empty, empty))
    decided: set[int] = set()

    def watch(chunk: Chunk) -> bool:
        require_finite(chunk, config)
        for seed, *flags in zip(chunk.seeds, chunk.metrics.optimal, chunk.metrics.greedy_optimal, strict=True):
            pairs = zip(histories[seed], flags, strict=True)
            histories[seed] = History(*(np.concatenate(pair) for pair in pairs))
            if is_decided(histories[seed]):
                decided.add(seed)
        shares = [1.0 if s in decided else len(h.training) / config.episodes for s, h in histories.items()]
        context.report(sum(shares) / len(shares))
        return decided.issuperset(chunk.seeds)

    for _ in training.chunks(context.should_stop, watch, context.pool):
        pass
    complete = all(seed in decided or len(h.training) == config.episodes for seed, h in histories.items())
    return histories if complete else None


def measure_learning(config: TrainConfig, context: Context) -> list[Row] | None:
    """Run one trial: when was the problem learned, by every definition, in every seed.

    Columns:
        env, agent, num_heads, mask_probability, initial_spread, learning_rate, seed: what was trained.
        episodes_to_learn: the 100th optimal training episode, the paper's definition; empty if there were fewer.
        greedy_episodes_to_learn: the same for evaluations by vote without dithering, one after every episode.
        consecutive_greedy_episodes: the end of the first 100 such evaluations in a row that were optimal.
        first_optimal_episode: of training.
        episodes: how many it took to know all this; the whole training where something was not learned.
    """

    def decided_at(history: History) -> int | None:
        times = [consecutive_episodes_to_learn(history.greedy)]
        if not config.agent.dithers:  # else it is not judged by its training episodes
            times.append(episodes_to_learn(history.training))
        known = [time for time in times if time is not None]
        return max(known) if len(known) == len(times) else None

    histories = train_until(config, context, lambda history: decided_at(history) is not None)
    if histories is None:
        return None
    rows = []
    for seed, history in histories.items():
        episodes = decided_at(history) or config.episodes
        training, greedy = (flags[:episodes] for flags in history)
        optimal = np.flatnonzero(training)
        rows.append(
            {
                "env": config.env,
                "agent": config.agent_name,
                "num_heads": config.agent.num_heads,
                "mask_probability": config.agent.mask_probability,
                "initial_spread": config.agent.initial_spread,
                "learning_rate": config.agent.learning_rate,
                "seed": seed,
                "episodes_to_learn": episodes_to_learn(training),
                "greedy_episodes_to_learn": episodes_to_learn(greedy),
                "consecutive_greedy_episodes": consecutive_episodes_to_learn(greedy),
                "first_optimal_episode": int(optimal[0]) + 1 if len(optimal) else None,
                "episodes": episodes,
            }
        )
    return rows


def training_cost(config: TrainConfig) -> Cost:
    """What a training takes if it goes on to its last episode."""
    env = make_env(config.env)
    training = CompiledTraining(env, config.agent, seeds=config.seeds, episodes=config.episodes)
    size = env.encoding.size
    if env.encoding.kind == "one_hot":  # looked up, not multiplied; but the optimizer goes through the whole table
        flops = update_flops(config.agent, 0, env.num_actions)
        flops += _FLOPS_PER_TABLE_WEIGHT * config.agent.num_heads * size * config.agent.hidden[0]
    else:
        flops = update_flops(config.agent, size, env.num_actions)
    flops /= config.agent.learning_period_steps
    rate = _SHARE_OF_PEAK * _peak_gflops() * 1e9 / available_cores()
    steps = config.num_seeds * config.episodes * env.horizon
    return Cost(_COMPILE_SECONDS + steps * (_SECONDS_PER_STEP + flops / rate), training.memory_bytes())


_peak_gflops = cache(gemm_gflops)
