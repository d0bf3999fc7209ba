import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from bootdqn.analysis.stats import (
    BSUITE_LOGGED,
    consecutive_episodes_to_learn,
    deep_sea_score,
    deep_sea_solved,
    episodes_to_learn,
    fit_exponential,
    fit_polynomial,
    gaussian_covers,
    gaussian_crps,
    gaussian_log_likelihood,
    mean_interval,
)


@pytest.mark.parametrize(
    ("optimal", "count", "in_all", "in_a_row"),
    [
        ([1, 0, 1, 1], 3, 4, None),
        ([1, 0, 1, 1], 2, 3, 4),
        ([1, 1, 1], 3, 3, 3),
        ([1, 1, 0], 3, None, None),
        ([], 1, None, None),
        ([0, 1], 1, 2, 2),
        ([1, 1, 0, 1, 1, 1, 1], 3, 4, 6),
    ],
)
def test_both_definitions_of_learned_by_hand(optimal, count, in_all, in_a_row):
    assert episodes_to_learn(optimal, count) == in_all
    assert consecutive_episodes_to_learn(optimal, count) == in_a_row


def test_the_paper_asks_for_one_hundred():
    optimal = np.zeros(300, bool)
    optimal[50:149] = True
    assert episodes_to_learn(optimal) is None
    assert consecutive_episodes_to_learn(optimal) is None
    optimal[200] = True
    assert episodes_to_learn(optimal) == 201
    assert consecutive_episodes_to_learn(optimal) is None
    optimal[149] = True
    assert episodes_to_learn(optimal) == consecutive_episodes_to_learn(optimal) == 150


SIZES = np.repeat(np.arange(10, 101, 10), 3)


def test_fits_recover_exact_laws():
    degree = fit_polynomial(SIZES, 3.0 * SIZES**1.7)
    np.testing.assert_allclose([degree.estimate, degree.low, degree.high, degree.coefficient], [1.7] * 3 + [3.0])
    assert degree.residual < 1e-12
    base = fit_exponential(SIZES, 5.0 * 1.04**SIZES)
    np.testing.assert_allclose([base.estimate, base.low, base.high, base.coefficient], [1.04] * 3 + [5.0])
    assert base.residual < 1e-12


def test_the_right_law_fits_better():
    times = 3.0 * SIZES**1.7
    assert fit_polynomial(SIZES, times).residual < fit_exponential(SIZES, times).residual
    times = 5.0 * 1.04**SIZES
    assert fit_exponential(SIZES, times).residual < fit_polynomial(SIZES, times).residual


def test_confidence_intervals_cover_the_truth_19_times_in_20():
    rng = np.random.default_rng(0)
    noise = np.exp(rng.normal(0, 0.3, (400, len(SIZES))))
    degrees = [fit_polynomial(SIZES, 3.0 * SIZES**1.7 * sample) for sample in noise]
    bases = [fit_exponential(SIZES, 5.0 * 1.04**SIZES * sample) for sample in noise]
    assert 0.92 < np.mean([d.low < 1.7 < d.high for d in degrees]) < 0.98
    assert 0.92 < np.mean([b.low < 1.04 < b.high for b in bases]) < 0.98


def test_a_fit_by_hand():
    # Through (log 1, log 1), (log 2, log 2), (log 4, log 16) with x = 0, 1, 2 and y = 0, 1, 4 in units of log 2:
    # slope 2, intercept -1/3, residuals 1/3, -2/3, 1/3, so s^2 = 2/3 and the slope's error sqrt(2/3) / sqrt(2).
    fit = fit_polynomial([1, 2, 4], [1, 2, 16])
    assert fit.estimate == pytest.approx(2)
    assert fit.coefficient == pytest.approx(2 ** (-1 / 3))
    assert fit.residual == pytest.approx(np.sqrt(2 / 3) * np.log(2))
    assert fit.high - fit.estimate == pytest.approx(12.7062047 * np.sqrt(1 / 3), rel=1e-6)  # Student's t, 1 degree


def flags(*runs):
    """Bad flags from (flag, how many) pairs."""
    return np.concatenate([np.full(count, flag) for flag, count in runs])


def test_episodes_that_bsuite_logs():
    assert BSUITE_LOGGED[:17].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40]
    assert {90, 100, 120, 140, 170, 250, 1200, 1700, 10_000} <= set(BSUITE_LOGGED.tolist())
    assert not {11, 13, 110, 150, 9_500} & set(BSUITE_LOGGED.tolist())


@pytest.mark.parametrize(
    ("bad", "stochastic", "expected"),
    [
        (flags((0, 1)), False, (True, 1)),
        (flags((1, 9), (0, 1)), False, (False, 10)),  # 9/10 is not below 0.9
        (flags((1, 9), (0, 2)), False, (False, 10)),  # 9/11 is, but 11 is not logged
        (flags((1, 9), (0, 3)), False, (True, 12)),
        (flags((1, 95), (0, 20)), False, (False, 100)),  # 0.95 at 100; 115 is not logged
        (flags((1, 95), (0, 25)), False, (True, 120)),
        (flags((1, 950)), False, (False, 900)),
        (flags((0, 99)), True, (False, 99)),
        (flags((1, 10_000), (0, 5_000)), False, (False, 10_000)),
        (flags((0, 99), (1, 1)), True, (True, 100)),  # not before the 100th
        (flags((0, 20), (1, 80), (0, 1), (1, 19)), True, (False, 120)),  # 80/100 is not below 0.8, nor 99/120
        (flags((0, 20), (1, 80), (0, 20)), True, (True, 120)),
        (flags((0, 21), (1, 9_979)), True, (True, 100)),  # once is enough
    ],
)
def test_deep_sea_solved_by_hand(bad, stochastic, expected):
    assert deep_sea_solved(bad, stochastic=stochastic) == expected


def test_deep_sea_score_by_hand():
    # 2**4 + 100 = 116 episodes are too many; 2**10 + 100 = 1124 leaves room for 1000.
    assert deep_sea_score({4: (True, 100), 5: (True, 120), 10: (True, 1000), 12: (False, 400)}) == 0.75
    assert deep_sea_score({4: (True, 116)}) == 0
    assert deep_sea_score({50: (True, 10_000)}) == 1


def test_the_interval_of_a_mean_by_hand():
    mean, half_width = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2
    assert half_width == pytest.approx(4.302653 / 3**0.5)  # Student's t with two degrees of freedom
    assert mean_interval([5.0])[0] == 5
    assert np.isnan(mean_interval([5.0])[1])


@pytest.mark.parametrize(
    ("y", "mean", "std"), [(0.0, 0.0, 1.0), (1.3, -0.2, 0.7), (-4.0, 1.0, 2.5), (9.0, 0.0, 1.0)]
)
def test_crps_is_the_integral_that_defines_it(y, mean, std):
    below = quad(lambda t: norm.cdf(t, mean, std) ** 2, mean - 12 * std, y)[0]
    above = quad(lambda t: norm.sf(t, mean, std) ** 2, y, mean + 12 * std)[0]
    assert gaussian_crps(y, mean, std) == pytest.approx(below + above, abs=1e-6)


def test_crps_at_known_points():
    # At the mean it is std * (sqrt(2) - 1) / sqrt(pi); far away, or when certain, the absolute error.
    assert gaussian_crps(3.0, 3.0, 2.0) == pytest.approx(2 * (2**0.5 - 1) / np.pi**0.5)
    np.testing.assert_allclose(gaussian_crps([1.0, -2.0], 0.0, 1e-9), [1, 2], atol=1e-8)
    np.testing.assert_array_equal(gaussian_crps([1.0, -2.0, 0.0], 0.0, 0.0), [1, 2, 0])


def test_crps_of_the_truth_is_least():
    y = np.random.default_rng(0).normal(1.0, 2.0, 50_000)
    truth = gaussian_crps(y, 1.0, 2.0).mean()
    assert truth == pytest.approx(2 / np.pi**0.5, rel=0.02)  # its expectation is std / sqrt(pi)
    assert all(gaussian_crps(y, m, s).mean() > truth for m, s in [(1.2, 2), (0.8, 2), (1, 1.7), (1, 2.4)])


def test_log_likelihood_and_coverage_against_closed_forms():
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=20_000), rng.uniform(0.5, 2, 20_000)
    y = rng.normal(mean, std)
    np.testing.assert_allclose(gaussian_log_likelihood(y, mean, std), norm.logpdf(y, mean, std), atol=1e-10)
    for level, factor in ((0.5, 1.0), (0.9, 1.0), (0.9, 0.5)):
        expected = 2 * norm.cdf(factor * norm.ppf(0.5 + level / 2)) - 1
        assert gaussian_covers(y, mean, factor * std, level).mean() == pytest.approx(expected, abs=0.01)
    assert gaussian_covers([0.67, 0.68, -1.64, -1.65], 0.0, 1.0, 0.5).tolist() == [True, False, False, False]
    assert gaussian_covers([0.67, 0.68, -1.64, -1.65], 0.0, 1.0, 0.9).tolist() == [True, True, True, False]
