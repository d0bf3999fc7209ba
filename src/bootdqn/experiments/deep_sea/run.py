"""One size: the episode at which bsuite would call it solved."""

from __future__ import annotations

import numpy as np

from bootdqn.experiments.learning import History, train_until
from bootdqn.experiments.runner import Context, Row
from bootdqn.stats import deep_sea_solved, deep_sea_threshold
from bootdqn.training import TrainConfig


def run(config: TrainConfig, context: Context) -> list[Row] | None:
    """Train until bsuite's answer is known.

    Columns:
        env, agent, seed: what was trained.
        solved: whether bsuite calls it solved: few enough bad episodes so far, at one of those that it logs.
        episode: the first such, or the last there was.
        first_optimal_episode: the first training episode that was not bad.
        good_episodes: how many were not, up to `episode`.
    """
    stochastic = config.env.endswith(",stochastic")
    fatal = deep_sea_threshold(stochastic=stochastic) * config.episodes

    def is_decided(history: History) -> bool:
        bad = ~history.training
        hopeless = bool(np.count_nonzero(bad) >= fatal)  # even if no other were bad
        return hopeless or deep_sea_solved(bad, stochastic=stochastic)[0]

    histories = train_until(config, context, is_decided)
    if histories is None:
        return None
    rows = []
    for seed, history in histories.items():
        solved, episode = deep_sea_solved(~history.training, stochastic=stochastic)
        episode = episode if solved else config.episodes
        good = np.flatnonzero(history.training[:episode])
        rows.append(
            {
                "env": config.env,
                "agent": config.agent_name,
                "seed": seed,
                "solved": int(solved),
                "episode": episode,
                "first_optimal_episode": int(good[0]) + 1 if len(good) else None,
                "good_episodes": len(good),
            }
        )
    return rows
