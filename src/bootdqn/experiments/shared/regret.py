"""Measures the regret of agents, and turns its rows into curves and cells of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from bootdqn.analysis.stats import mean_interval
from bootdqn.envs.registry import make_env
from bootdqn.experiments.engine.cost import estimate_cost
from bootdqn.experiments.engine.experiment import Context, CsvRow, Experiment, ResultRow
from bootdqn.loops.seeds import Chunk, gather_by_seed
from bootdqn.plots.regret import RegretCurve
from bootdqn.runs.config import RunConfig
from bootdqn.runs.seed_results import make_seed_loop

_NUM_EVEN = 20
"""The number of evenly spaced episodes after which regret is recorded."""
_PER_DECADE = 4
"""The number of further such episodes per factor of ten, at equal ratios for logarithmic axes."""
_STYLES = ("-", "--", "-.")


def checkpoints(episodes: int) -> NDArray[np.int_]:
    """Return the numbers of the episodes after which the regret of a run of this length is recorded."""
    even = np.linspace(0, episodes, _NUM_EVEN + 1)[1:]
    ratios = 10 ** np.arange(1, np.log10(episodes), 1 / _PER_DECADE)
    return np.unique(np.concatenate([even, ratios]).round().astype(int).clip(1))


def measure_regret(config: RunConfig, context: Context) -> list[ResultRow] | None:
    """Run one trial, and record the cumulative regret of every seed after some numbers of episodes.

    Columns:
        seed: the seed.
        episode: the number of episodes so far.
        regret: the sum over episodes of the optimal value minus the return, as in the paper.
        pseudo_regret: the sum of what the actions lost in expectation, without the luck of moves and rewards.
    """
    env = make_env(str(config.env))
    loop = make_seed_loop(config)

    def watch(chunk: Chunk[Any]) -> None:
        for seed in chunk.seeds:
            loop.require_finite_chunk(chunk, seed)
        context.report((chunk.first_episode + chunk.metrics.episode_return.shape[1]) / config.episodes)

    metrics = gather_by_seed(loop.chunks(context.should_stop, pool=context.pool), watch)
    if sum(len(m.regret) for m in metrics.values()) < config.episodes * config.num_seeds:
        return None
    rows: list[ResultRow] = []
    for seed, m in metrics.items():
        realised = np.cumsum(env.solved_return - np.asarray(m.episode_return, float))
        pseudo = np.cumsum(m.regret, dtype=float)
        rows += [
            {
                "seed": seed,
                "episode": int(episode),
                "regret": round(float(realised[episode - 1]), 4),
                "pseudo_regret": round(float(pseudo[episode - 1]), 4),
            }
            for episode in checkpoints(config.episodes)
        ]
    return rows


def _describe(config: RunConfig) -> ResultRow:
    return {"env": config.env, "agent": config.agent_name}


regret_experiment = partial(Experiment, run=measure_regret, describe=_describe, cost=estimate_cost)
"""Makes an experiment whose trials measure regret, from the other fields of `Experiment`."""


def regret_curves(groups: Mapping[str, Sequence[CsvRow]], column: str) -> list[RegretCurve]:
    """Make a curve per label: the mean of a column over seeds, and its 95% interval (Student's t).

    Variants of one agent share its colour and differ in their line style.
    """
    curves: list[RegretCurve] = []
    for label, rows in groups.items():
        agent = rows[0]["agent"]
        values: dict[int, list[float]] = {}
        for row in rows:
            values.setdefault(int(row["episode"]), []).append(float(row[column]))
        episodes = sorted(values)
        means, half_widths = zip(*(mean_interval(values[episode]) for episode in episodes), strict=True)
        style = _STYLES[sum(curve.agent == agent for curve in curves) % len(_STYLES)]
        curves.append(RegretCurve(label, agent, style, np.array(episodes), np.array(means), np.array(half_widths)))
    return curves


def final_values(rows: Iterable[CsvRow], column: str) -> list[float]:
    """Return the values of a column after the last episode, one per seed."""
    rows = list(rows)
    last = max((int(row["episode"]) for row in rows), default=0)
    return [float(row[column]) for row in rows if int(row["episode"]) == last]


def final_cell(values: Sequence[float]) -> str:
    """Format the mean of some values, its 95% interval and the median, as a cell of a table."""
    if not values:
        return ""
    mean, half_width = mean_interval(values)
    return f"{mean:.0f}" if np.isnan(half_width) else f"{mean:.0f} ± {half_width:.0f} ({np.median(values):.0f})"


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> str:
    """Format the ratio of two means with its 95% interval, which is Student's t on the logarithm."""
    ratio = np.mean(above) / np.mean(below)
    freedom = min(len(above), len(below)) - 1
    if freedom == 0:
        return f"{ratio:.2f}"
    errors = [np.std(values, ddof=1) / np.sqrt(len(values)) / np.mean(values) for values in (above, below)]
    factor = np.exp(stdtrit(freedom, 0.975) * np.hypot(*errors))
    return f"{ratio:.2f} ({ratio / factor:.2f} to {ratio * factor:.2f})"
