"""What experiments that measure regret share: trials, what they cost, and from rows to curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from bootdqn.agent import AgentConfig
from bootdqn.envs.catalog import make_env
from bootdqn.experiments.learning import training_cost
from bootdqn.experiments.runner import Context, Cost, CsvRow, Row
from bootdqn.figures import RegretCurve
from bootdqn.stats import mean_interval
from bootdqn.training import AnyChunk, TrainConfig, gather_by_seed, make_training, require_finite

_NUM_EVEN = 20
"""Episodes at which regret is written down, evenly spaced."""
_PER_DECADE = 4
"""And by equal ratios, for logarithmic axes."""
_SECONDS_PER_ENTRY = 1e-7
"""What an episode takes for every entry of H tables of transitions, at most (`bootdqn bench tabular`)."""
_COMPILE_SECONDS = 8.0
_STYLES = ("-", "--", "-.")


def checkpoints(episodes: int) -> NDArray[np.int_]:
    """Numbers of the episodes after which regret is written down."""
    even = np.linspace(0, episodes, _NUM_EVEN + 1)[1:]
    ratios = 10 ** np.arange(1, np.log10(episodes), 1 / _PER_DECADE)
    return np.unique(np.concatenate([even, ratios]).round().astype(int).clip(1))


def measure_regret(config: TrainConfig, context: Context) -> list[Row] | None:
    """Run one trial: regret so far, in every seed and after some numbers of episodes.

    Columns:
        seed
        episode
        regret: the optimal value minus the realised return, summed over episodes: the paper's.
        pseudo_regret: what the actions lost in expectation, summed; without the luck of moves and rewards.
    """
    env = make_env(config.env)
    training = make_training(env, config)

    def watch(chunk: AnyChunk) -> None:
        for seed in chunk.seeds:
            require_finite(chunk, config, seed=seed)
        context.report((chunk.first_episode + chunk.metrics.episode_return.shape[1]) / config.episodes)

    metrics = gather_by_seed(training.chunks(context.should_stop, pool=context.pool), watch)
    if sum(len(m.regret) for m in metrics.values()) < config.episodes * config.num_seeds:
        return None
    rows: list[Row] = []
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


def describe_regret(config: TrainConfig) -> Row:
    """What was run, as columns of `results.csv`."""
    return {"env": config.env, "agent": config.agent_name}


def regret_cost(config: TrainConfig) -> Cost:
    """What a trial takes."""
    if isinstance(config.agent, AgentConfig):
        return training_cost(config)
    env = make_env(config.env)
    states, actions, horizon = env.mdp.shape
    seconds = config.episodes * horizon * states * actions * states * _SECONDS_PER_ENTRY
    return Cost(
        core_seconds=_COMPILE_SECONDS + config.num_seeds * seconds,
        least_seconds=_COMPILE_SECONDS + seconds,
        bytes=make_training(env, config).memory_bytes(),
        threads=config.num_seeds,
    )


def regret_curves(groups: Mapping[str, Sequence[CsvRow]], column: str) -> list[RegretCurve]:
    """Mean over seeds, and its 95% interval (Student's t), of a column: a curve for every label.

    Variants of an agent have its colour, and lines of their own.
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
    """A column after the last episode, by seed."""
    rows = list(rows)
    last = max((int(row["episode"]) for row in rows), default=0)
    return [float(row[column]) for row in rows if int(row["episode"]) == last]


def final_cell(values: Sequence[float]) -> str:
    """Mean, its interval and the median of some values, for a table."""
    if not values:
        return ""
    mean, half_width = mean_interval(values)
    return f"{mean:.0f}" if np.isnan(half_width) else f"{mean:.0f} ± {half_width:.0f} ({np.median(values):.0f})"


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> str:
    """Ratio of two means, with its 95% interval: Student's t on the logarithm."""
    ratio = np.mean(above) / np.mean(below)
    freedom = min(len(above), len(below)) - 1
    if freedom == 0:
        return f"{ratio:.2f}"
    errors = [np.std(values, ddof=1) / np.sqrt(len(values)) / np.mean(values) for values in (above, below)]
    factor = np.exp(stdtrit(freedom, 0.975) * np.hypot(*errors))
    return f"{ratio:.2f} ({ratio / factor:.2f} to {ratio * factor:.2f})"
