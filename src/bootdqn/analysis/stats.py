"""Statistics: times to learn and how they scale, calibration of forecasts, and scores of games."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

OPTIMAL_EPISODES = 100
"""A chain counts as learned after this many episodes with the optimal return (paper, section 5.1)."""

_RATIOS = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)
BSUITE_LOGGED = np.unique([r * 10**e // 10 for e in range(5) for r in _RATIOS if r * 10**e % 10 == 0])
"""The numbers of the episodes, from 1, after which bsuite logs its results."""
BSUITE_EPISODES = 10_000
"""The length of bsuite's runs on DeepSea, in episodes."""

AUC_EPOCHS = 100
"""Number of epochs over which the area under the curve is taken (Stadie et al. 2015)."""
NUM_RESAMPLES = 2000
"""Number of resamples behind a bootstrap interval."""


def episodes_to_learn(optimal: ArrayLike, count: int = OPTIMAL_EPISODES) -> int | None:
    """Number of the episode that was the `count`-th optimal one, not necessarily in a row.

    Args:
        optimal: whether each episode was optimal [E].
        count: the number of optimal episodes after which the task counts as learned.

    Returns:
        An episode number from 1, or None if there are fewer optimal episodes.
    """
    episodes = np.flatnonzero(optimal)
    return int(episodes[count - 1]) + 1 if len(episodes) >= count else None


def consecutive_episodes_to_learn(optimal: ArrayLike, count: int = OPTIMAL_EPISODES) -> int | None:
    """Number of the episode that completes the first `count` optimal ones in a row, as in `episodes_to_learn`."""
    flags = np.asarray(optimal, bool)
    if len(flags) < count:
        return None
    complete = np.flatnonzero(np.convolve(flags, np.ones(count, int), "valid") == count)
    return int(complete[0]) + count if len(complete) else None


class Scaling(NamedTuple):
    """How a time grows with a size, as fitted by least squares to the logarithm of the time."""

    estimate: float
    """The degree b of a polynomial a N^b, or the base c of an exponential a c^N."""
    low: float
    high: float
    """The 95% confidence interval of the estimate is from `low` to `high`."""
    coefficient: float
    """The factor a."""
    residual: float
    """Standard deviation of the log time around the fit; the smaller, the better the fit."""


def fit_polynomial(sizes: ArrayLike, times: ArrayLike) -> Scaling:
    """Fit times [T] to a N^b; the estimate is the degree b."""
    slope, half_width, intercept, residual = _fit_line(np.log(np.asarray(sizes, float)), times)
    return Scaling(slope, slope - half_width, slope + half_width, float(np.exp(intercept)), residual)


def fit_exponential(sizes: ArrayLike, times: ArrayLike) -> Scaling:
    """Fit times [T] to a c^N; the estimate is the base c."""
    slope, half_width, intercept, residual = _fit_line(np.asarray(sizes, float), times)
    base, low, high, coefficient = np.exp([slope, slope - half_width, slope + half_width, intercept])
    return Scaling(float(base), float(low), float(high), float(coefficient), residual)


def _fit_line(x: np.ndarray, times: ArrayLike) -> tuple[float, float, float, float]:
    """Fit log times [T] by a line: slope, half width of its 95% interval (Student's t), intercept, residual."""
    y = np.log(np.asarray(times, float))
    slope, intercept = np.polyfit(x, y, 1)
    freedom = len(y) - 2
    residual = np.sqrt(np.sum(np.square(y - intercept - slope * x)) / freedom)
    error = residual / np.sqrt(np.sum(np.square(x - x.mean())))
    return float(slope), float(_t_quantile(freedom) * error), float(intercept), float(residual)


def _t_quantile(freedom: int) -> float:
    """The 97.5% quantile of Student's t distribution, for 95% confidence intervals."""
    from scipy.special import stdtrit  # not above: a fifth of the import time of the package

    return float(stdtrit(freedom, 0.975))


def deep_sea_threshold(*, stochastic: bool) -> float:
    """The share of bad episodes below which bsuite counts DeepSea as solved."""
    return 0.8 if stochastic else 0.9


def deep_sea_solved(bad: ArrayLike, *, stochastic: bool = False) -> tuple[bool, int]:
    """Whether, and when, bsuite would count a run on DeepSea as solved.

    That is at the first logged episode at which fewer than 90% of all episodes so far were bad; in the stochastic
    version fewer than 80%, and not before the 100th episode.

    Args:
        bad: whether the agent left the way to the reward by choice in each episode [E].
        stochastic: whether this is the stochastic version.

    Returns:
        Whether it is solved within bsuite's 10,000 episodes, and at which episode; if not, the last logged one.
    """
    total = np.cumsum(np.asarray(bad, bool)[:BSUITE_EPISODES])
    first = 100 if stochastic else 1
    logged = BSUITE_LOGGED[(first <= BSUITE_LOGGED) & (len(total) >= BSUITE_LOGGED)]
    solved = logged[total[logged - 1] / logged < deep_sea_threshold(stochastic=stochastic)]
    if len(solved):
        return True, int(solved[0])
    return False, int(logged[-1]) if len(logged) else len(total)


def deep_sea_score(solutions: Mapping[int, tuple[bool, int]]) -> float:
    """The DeepSea score of bsuite: the fraction of sizes that were solved sooner than by dithering.

    Args:
        solutions: the result of `deep_sea_solved` for one run per size.
    """
    return float(np.mean([solved and episode < 2**size + 100 for size, (solved, episode) in solutions.items()]))


def mean_interval(values: ArrayLike) -> tuple[float, float]:
    """Mean and half width of its 95% confidence interval (Student's t), which is NaN for a single value."""
    values = np.asarray(values, float)
    count = len(values)
    if count == 1:
        return float(values[0]), float("nan")
    return float(values.mean()), float(_t_quantile(count - 1) * values.std(ddof=1) / np.sqrt(count))


def gaussian_covers(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float) -> NDArray[np.bool_]:
    """Whether y lies in the central interval of probability `level` of a normal forecast."""
    from scipy.special import ndtri

    return np.abs(np.subtract(y, mean)) <= ndtri(0.5 + level / 2) * np.asarray(std)


def gaussian_log_likelihood(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> NDArray[np.float64]:
    """Log density of a normal forecast at y; `std` must be positive."""
    z = np.subtract(y, mean) / np.asarray(std)
    return -0.5 * np.square(z) - np.log(std) - 0.5 * np.log(2 * np.pi)


def gaussian_crps(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> NDArray[np.float64]:
    """Continuous ranked probability score of a normal forecast, in the units of y; 0 is perfect.

    It is the integral of the squared difference between the forecast's distribution function and the step at y; of
    a forecast that is certain, the absolute error.
    """
    from scipy.special import ndtr

    error, std = np.subtract(y, mean), np.asarray(std, float)
    z = np.where(std > 0, error / np.where(std > 0, std, 1.0), 40.0 * np.sign(error))
    density = np.exp(-0.5 * np.square(z)) / np.sqrt(2 * np.pi)
    return error * (2 * ndtr(z) - 1) + std * (2 * density - 1 / np.sqrt(np.pi))


def normalised(score: ArrayLike, random: ArrayLike, reference: ArrayLike) -> NDArray[np.float64]:
    """Score on a scale where 0 is random play and 1 a reference, such as a human or another agent.

    It is infinite or NaN if the reference equals random play.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(np.subtract(score, random), np.subtract(reference, random), dtype=float)


def frames_to_reach(frames: ArrayLike, scores: ArrayLike, level: float) -> int | None:
    """Frames up to the first evaluation that reaches a level, such as a human's score; None if none does."""
    reached = np.flatnonzero(np.asarray(scores, float) >= level)
    return int(np.asarray(frames)[reached[0]]) if len(reached) else None


def auc(epochs: ArrayLike, scores: ArrayLike, reference: float, num_epochs: float = AUC_EPOCHS) -> float:
    """Area under the learning curve, relative to an agent that has the reference score all the time.

    With 100 epochs of 200,000 frames and the score of Nature's DQN as the reference this is AUC-100 (Stadie et al.
    2015). Random play is not subtracted.

    Args:
        epochs: times of the evaluations, ascending [E]; the last must not be before `num_epochs`.
        scores: scores of the evaluations [E], interpolated linearly, and constant before the first.
        reference: the reference score; if it is 0, the result is 0 for an area of 0 and otherwise infinite.
        num_epochs: the end of the area.
    """
    epochs, scores = np.asarray(epochs, float), np.asarray(scores, float)
    if epochs[-1] < num_epochs:
        raise ValueError(f"the evaluations end at epoch {epochs[-1]:g}, before {num_epochs:g}")
    inner = (epochs > 0) & (epochs < num_epochs)
    x = np.concatenate([[0.0], epochs[inner], [num_epochs]])
    area = float(np.trapezoid(np.interp(x, epochs, scores), x)) / num_epochs
    if reference == 0:
        return float(np.copysign(np.inf, area)) if area else 0.0
    return area / reference


def cumulative_reward(frames: ArrayLike, scores: ArrayLike, random: float = 0.0) -> NDArray[np.float64]:
    """Running sum over evaluations [E] of the score above random play times the frames since the last evaluation.

    The paper does not say how it computes cumulative rewards; this is what evaluations alone allow.
    """
    return np.cumsum(np.subtract(scores, random) * np.diff(frames, prepend=0))


Strata = Sequence[NDArray[np.floating]]
"""Scores of the runs of every game, one array [..., seeds] per game."""


def mean_of_games(strata: Strata) -> NDArray[np.float64]:
    """Mean over games of the mean over seeds."""
    return np.mean([np.mean(runs, axis=-1) for runs in strata], axis=0)


def median_of_games(strata: Strata) -> NDArray[np.float64]:
    """Median over games of the mean over seeds."""
    return np.median([np.mean(runs, axis=-1) for runs in strata], axis=0)


def iqm(strata: Strata) -> NDArray[np.float64]:
    """Interquartile mean over the runs of all games (Agarwal et al. 2021)."""
    runs = np.sort(_all_runs(strata), axis=-1)  # scipy's trim_mean would add a third to the time of an import
    cut = runs.shape[-1] // 4
    return np.mean(runs[..., cut : runs.shape[-1] - cut], axis=-1)


def _all_runs(strata: Strata) -> NDArray[np.float64]:
    """The scores of all games in one array [..., runs]."""
    return np.concatenate([*strata], axis=-1, dtype=float)


class Interval(NamedTuple):
    """An estimate, or an array of them, with its 95% bootstrap interval."""

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def stratified_bootstrap(
    rng: np.random.Generator, strata: Strata, statistic: Callable[[Strata], NDArray[np.float64]]
) -> Interval:
    """A statistic of runs on several games, with a bootstrap interval over seeds.

    Seeds are resampled within every game; the games stay fixed. The interval is NaN if a game has a single seed.

    Args:
        rng: random generator of the resampling.
        strata: scores [seeds] of every game.
        statistic: a function such as `iqm`, from scores [..., seeds] to [...], possibly with further axes.
    """
    estimate = np.asarray(statistic(strata))
    if min(map(len, strata)) == 1:
        return Interval(estimate, np.full_like(estimate, np.nan), np.full_like(estimate, np.nan))
    draws = [runs[rng.integers(len(runs), size=(NUM_RESAMPLES, len(runs)))] for runs in strata]
    low, high = np.quantile(statistic(draws), [0.025, 0.975], axis=0)
    return Interval(estimate, low, high)


def performance_profile(rng: np.random.Generator, strata: Strata, thresholds: ArrayLike) -> Interval:
    """Share of all runs with a score above each threshold [T], with bootstrap intervals [T]."""
    thresholds = np.asarray(thresholds, float)

    def shares(strata: Strata) -> NDArray[np.float64]:
        runs = _all_runs(strata)
        return np.stack([np.mean(runs > threshold, axis=-1) for threshold in thresholds], axis=-1)

    return stratified_bootstrap(rng, strata, shares)
