"""One size: the episode at which bsuite would call it solved."""

from __future__ import annotations

import math

import numpy as np

from bootdqn.envs.catalog import make_env
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.experiments.learning import History, train_until
from bootdqn.experiments.runner import Context, Row
from bootdqn.stats import deep_sea_solved, deep_sea_threshold, episodes_to_learn
from bootdqn.training import TrainConfig


def run(config: TrainConfig, context: Context) -> list[Row] | None:
    """Train until bsuite's answer is known.

    Columns:
        seed
        solved: whether bsuite calls it solved: few enough bad episodes so far, at one of those that it logs.
        episodes: the number of that episode; where it is not solved, of the one after which it could not be.
        first_optimal_episode: the first training episode that was not bad; empty where all were.
        good_episodes: how many were not.
    """
    env = make_env(config.env)
    stochastic = isinstance(env, DeepSea) and env.stochastic
    fatal = math.ceil(deep_sea_threshold(stochastic=stochastic) * config.episodes)

    def decided_at(history: History) -> int | None:
        bad = ~history.training
        solved, episode = deep_sea_solved(bad, stochastic=stochastic)
        # So many bad episodes are too many even if no other were.
        return episode if solved else episodes_to_learn(bad, fatal)

    histories = train_until(config, context, decided_at)
    if histories is None:
        return None
    return [
        {
            "seed": seed,
            "solved": int(deep_sea_solved(~history.training, stochastic=stochastic)[0]),
            "episodes": len(history.training),
            "first_optimal_episode": episodes_to_learn(history.training, 1),
            "good_episodes": int(np.count_nonzero(history.training)),
        }
        for seed, history in histories.items()
    ]
