"""Numbers: when something was learned, how that grows with a size, how good a forecast or a score was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

OPTIMAL_EPISODES = 100
"""The paper calls a chain learned after this many episodes with the optimal return (section 5.1)."""

_RATIOS = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)
BSUITE_LOGGED = np.unique([r * 10**e // 10 for e in range(5) for r in _RATIOS if r * 10**e % 10 == 0])
"""Episodes after which bsuite writes down how a run stands, from 1."""
BSUITE_EPISODES = 10_000
"""Episodes of bsuite's runs on DeepSea."""

AUC_EPOCHS = 100
"""Epochs that the area under the curve is taken over (Stadie et al. 2015)."""
NUM_RESAMPLES = 2000
"""Draws that bootstrap intervals come from."""


def episodes_to_learn(optimal: ArrayLike, count: int = OPTIMAL_EPISODES) -> int | None:
    """Number of the episode that was the `count`-th optimal one, not necessarily in a row.

    Args:
        optimal: whether each successive episode was [E].
        count: how many it takes.

    Returns:
        An episode number from 1, or None where there are fewer.
    """
    episodes = np.flatnonzero(optimal)
    return int(episodes[count - 1]) + 1 if len(episodes) >= count else None


def consecutive_episodes_to_learn(optimal: ArrayLike, count: int = OPTIMAL_EPISODES) -> int | None:
    """Number of the episode that ends the first `count` optimal ones in a row; as `episodes_to_learn`."""
    flags = np.asarray(optimal, bool)
    if len(flags) < count:
        return None
    complete = np.flatnonzero(np.convolve(flags, np.ones(count, int), "valid") == count)
    return int(complete[0]) + count if len(complete) else None


class Scaling(NamedTuple):
    """How a time grows with a size, by a straight line through logarithms."""

    estimate: float
    """The degree b of a polynomial a N^b, or the base c of an exponential a c^N."""
    low: float
    high: float
    """Ends of the 95% confidence interval."""
    coefficient: float
    """a."""
    residual: float
    """Standard deviation of log time around the line: the smaller, the better the law fits."""


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
    """Least squares of log times: slope, half the width of its 95% interval (Student's t), intercept, residual."""
    y = np.log(np.asarray(times, float))
    slope, intercept = np.polyfit(x, y, 1)
    freedom = len(y) - 2
    residual = np.sqrt(np.sum(np.square(y - intercept - slope * x)) / freedom)
    error = residual / np.sqrt(np.sum(np.square(x - x.mean())))
    return float(slope), float(stdtrit(freedom, 0.975) * error), float(intercept), float(residual)


def deep_sea_threshold(*, stochastic: bool) -> float:
    """Share of bad episodes below which bsuite calls DeepSea solved."""
    return 0.8 if stochastic else 0.9


def deep_sea_solved(bad: ArrayLike, *, stochastic: bool = False) -> tuple[bool, int]:
    """Whether, and when, bsuite would call a run on DeepSea solved.

    That is at the first episode that bsuite logs after which fewer than 90% of all episodes so far were bad; in
    the stochastic version fewer than 80%, and not before the 100th.

    Args:
        bad: whether the agent left the way to the reward by choice in each of successive episodes [E].
        stochastic: which version was played.

    Returns:
        Whether it is solved within bsuite's 10,000 episodes; at which episode, or else the last that is logged.
    """
    total = np.cumsum(np.asarray(bad, bool)[:BSUITE_EPISODES])
    first = 100 if stochastic else 1
    logged = BSUITE_LOGGED[(first <= BSUITE_LOGGED) & (len(total) >= BSUITE_LOGGED)]
    solved = logged[total[logged - 1] / logged < deep_sea_threshold(stochastic=stochastic)]
    if len(solved):
        return True, int(solved[0])
    return False, int(logged[-1]) if len(logged) else len(total)


def deep_sea_score(solutions: Mapping[int, tuple[bool, int]]) -> float:
    """Score of DeepSea as bsuite has it: the fraction of sizes solved sooner than dithering would.

    Args:
        solutions: `deep_sea_solved` of one run for every size.
    """
    return float(np.mean([solved and episode < 2**size + 100 for size, (solved, episode) in solutions.items()]))


def mean_interval(values: ArrayLike) -> tuple[float, float]:
    """Mean, and half the width of its 95% interval (Student's t); of a single value the latter is NaN."""
    values = np.asarray(values, float)
    count = len(values)
    if count == 1:
        return float(values[0]), float("nan")
    return float(values.mean()), float(stdtrit(count - 1, 0.975) * values.std(ddof=1) / np.sqrt(count))


def gaussian_covers(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float) -> NDArray[np.bool_]:
    """Whether y lies in the central interval that a normal forecast gives the probability `level`."""
    return np.abs(np.subtract(y, mean)) <= ndtri(0.5 + level / 2) * np.asarray(std)


def gaussian_log_likelihood(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> NDArray[np.float64]:
    """Logarithm of the density that a normal forecast has at y; `std` must not be zero."""
    z = np.subtract(y, mean) / np.asarray(std)
    return -0.5 * np.square(z) - np.log(std) - 0.5 * np.log(2 * np.pi)


def gaussian_crps(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> NDArray[np.float64]:
    """Continuous ranked probability score of a normal forecast, in the units of y; 0 is perfect.

    It is the integral of the squared difference between the forecast's distribution function and the step at y; of
    a forecast that is certain, the absolute error.
    """
    error, std = np.subtract(y, mean), np.asarray(std, float)
    z = np.where(std > 0, error / np.where(std > 0, std, 1.0), 40.0 * np.sign(error))
    density = np.exp(-0.5 * np.square(z)) / np.sqrt(2 * np.pi)
    return error * (2 * ndtr(z) - 1) + std * (2 * density - 1 / np.sqrt(np.pi))


def normalised(score: ArrayLike, random: ArrayLike, reference: ArrayLike) -> NDArray[np.float64]:
    """Score of an agent on a scale where 0 is random play and 1 a reference: a human, or another agent.

    Where the reference is no better than random play it is infinite, or NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(np.subtract(score, random), np.subtract(reference, random), dtype=float)


def frames_to_reach(frames: ArrayLike, scores: ArrayLike, level: float) -> int | None:
    """Frames up to the first evaluation that is not below a level, such as a human's score; None where all are."""
    reached = np.flatnonzero(np.asarray(scores, float) >= level)
    return int(np.asarray(frames)[reached[0]]) if len(reached) else None


def auc(epochs: ArrayLike, scores: ArrayLike, reference: float, num_epochs: float = AUC_EPOCHS) -> float:
    """Area under the learning curve, as a share of that of an agent which has the reference score all the time.

    With 100 epochs of 200,000 frames and the score of Nature's DQN as the reference this is AUC-100 (Stadie et al.
    2015). Random play is not subtracted.

    Args:
        epochs: when the evaluations took place, ascending [E]; the last not before `num_epochs`.
        scores: theirs [E]; straight lines between them, and before the first its own.
        reference: a score; with 0, an area of 0 is 0 and any other infinite.
        num_epochs: where the area ends.
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
    """Running sum over evaluations [E] of the score, less that of random play, times the frames since the last.

    The paper does not say how it gets cumulative rewards; this is what its evaluations allow.
    """
    return np.cumsum(np.subtract(scores, random) * np.diff(frames, prepend=0))


Strata = Sequence[NDArray[np.floating]]
"""Scores of the runs of every game: an array [..., seeds] a game."""


def mean_of_games(strata: Strata) -> NDArray[np.float64]:
    """Mean over games of the mean over seeds."""
    return np.mean([np.mean(runs, axis=-1) for runs in strata], axis=0)


def median_of_games(strata: Strata) -> NDArray[np.float64]:
    """Median over games of the mean over seeds."""
    return np.median([np.mean(runs, axis=-1) for runs in strata], axis=0)


def iqm(strata: Strata) -> NDArray[np.float64]:
    """Mean of all runs of all games but the lowest and the highest quarter of them (Agarwal et al. 2021)."""
    runs = np.sort(_all_runs(strata), axis=-1)  # scipy's trim_mean would add a third to the time of an import
    cut = runs.shape[-1] // 4
    return np.mean(runs[..., cut : runs.shape[-1] - cut], axis=-1)


def _all_runs(strata: Strata) -> NDArray[np.float64]:
    """Those of all games in a row."""
    return np.concatenate([*strata], axis=-1, dtype=float)


class Interval(NamedTuple):
    """A number, or an array of them, with the 95% interval of a bootstrap."""

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def stratified_bootstrap(
    rng: np.random.Generator, strata: Strata, statistic: Callable[[Strata], NDArray[np.float64]]
) -> Interval:
    """A statistic of runs on several games, and how far it depends on the seeds.

    Seeds are drawn anew within every game; the games stay. Where a game has a single seed the interval is NaN.

    Args:
        rng: draws the seeds.
        strata: scores [seeds] for every game.
        statistic: such as `iqm`; of scores [..., seeds] it returns [...], or more axes after these.
    """
    estimate = np.asarray(statistic(strata))
    if min(map(len, strata)) == 1:
        return Interval(estimate, np.full_like(estimate, np.nan), np.full_like(estimate, np.nan))
    draws = [runs[rng.integers(len(runs), size=(NUM_RESAMPLES, len(runs)))] for runs in strata]
    low, high = np.quantile(statistic(draws), [0.025, 0.975], axis=0)
    return Interval(estimate, low, high)


def performance_profile(rng: np.random.Generator, strata: Strata, thresholds: ArrayLike) -> Interval:
    """Share of all runs with a score above each of some thresholds [T], with bootstrap intervals [T]."""
    thresholds = np.asarray(thresholds, float)

    def shares(strata: Strata) -> NDArray[np.float64]:
        runs = _all_runs(strata)
        return np.stack([np.mean(runs > threshold, axis=-1) for threshold in thresholds], axis=-1)

    return stratified_bootstrap(rng, strata, shares)
