"""Statistics of game scores: by hand, and recomputed from the paper's tables."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from bootdqn.analysis.stats import (
    auc,
    cumulative_reward,
    frames_to_reach,
    iqm,
    mean_of_games,
    median_of_games,
    normalised,
    performance_profile,
    stratified_bootstrap,
)
from bootdqn.envs.atari import GAMES
from bootdqn.experiments.shared.paper_scores import PAPER_AREAS, PAPER_SCORES, PRINTED_AVERAGE

# By hand.


def test_normalised_scores():
    assert normalised(30, 10, 50) == 0.5
    np.testing.assert_array_equal(normalised([10, 50, 0], 10, 50), [0, 1, -0.25])
    assert normalised(1, 0, 0) == np.inf
    assert np.isnan(normalised(0, 0, 0))


def test_frames_to_a_level_are_those_of_the_first_evaluation_that_has_it():
    frames, scores = [10, 20, 30, 40], [1.0, 5.0, 2.0, 7.0]
    assert [frames_to_reach(frames, scores, level) for level in (0, 5, 5.1, 7.1)] == [10, 20, 40, None]


def test_area_under_a_curve():
    # Constant 2 up to epoch 1, then a line to 4 at epoch 3: 2 + 2 * 3 = 8 over 3 epochs.
    assert auc([1, 3], [2, 4], 1.0, 3) == pytest.approx(8 / 3)
    # Cut in the middle of a line: 2 + (2 + 3) / 2 over 2 epochs.
    assert auc([1, 3], [2, 4], 5.0, 2) == pytest.approx(4.5 / 2 / 5)
    # An evaluation before training counts where it is.
    assert auc([0, 1, 2], [0, 2, 2], 1.0, 2) == pytest.approx(1.5)
    assert auc(np.arange(1, 101), np.full(100, 3.0), 6.0) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="end at epoch 99, before 100"):
        auc(np.arange(1, 100), np.ones(99), 1.0)


def test_area_beside_a_score_of_zero():
    assert auc([1, 2], [0, 0], 0.0, 2) == 0
    assert auc([1, 2], [0, 1], 0.0, 2) == np.inf


def test_cumulative_reward_weights_scores_by_frames():
    np.testing.assert_array_equal(cumulative_reward([10, 20, 50], [1, 3, 2]), [10, 40, 100])
    np.testing.assert_array_equal(cumulative_reward([10, 20, 50], [1, 3, 2], 1), [0, 20, 50])
    np.testing.assert_array_equal(cumulative_reward([0, 10], [7, 1]), [0, 10])


STRATA = [np.array([0.0, 1.0, 2.0]), np.array([10.0, 12.0, 14.0]), np.array([3.0, 3.0, 3.0])]


def test_aggregates():
    assert mean_of_games(STRATA) == pytest.approx((1 + 12 + 3) / 3)
    assert median_of_games(STRATA) == 3
    assert iqm(STRATA) == pytest.approx((2 + 3 + 3 + 3 + 10) / 5)  # two of nine fall away at each end
    # A game with more seeds than others counts no more, but in the interquartile mean.
    assert mean_of_games([np.array([1.0, 3.0]), np.array([4.0])]) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 11])
def test_interquartile_mean_is_scipys_trimmed_mean(count):
    runs = np.random.default_rng(count).normal(size=(6, count))
    np.testing.assert_allclose(iqm([runs]), trim_mean(runs, 0.25, axis=-1))


def test_seeds_are_drawn_within_games():
    rng = np.random.default_rng(0)
    interval = stratified_bootstrap(rng, STRATA, mean_of_games)
    assert interval.estimate == mean_of_games(STRATA)
    # Means of three draws have variances 2/9, 8/9 and 0: the mean of games has a standard deviation of 0.351.
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.sqrt(10 / 81), rel=0.1)
    assert interval.low < interval.estimate < interval.high
    # Across games they would range far wider; without spread within games there is none at all.
    flat = stratified_bootstrap(rng, [np.full(3, 1.0), np.full(2, 9.0)], mean_of_games)
    assert flat == (5, 5, 5)


def test_intervals_need_two_seeds_and_are_the_same_every_time():
    single = stratified_bootstrap(np.random.default_rng(0), [STRATA[0], np.array([1.0])], iqm)
    assert single.estimate == pytest.approx(1)
    assert np.isnan([single.low, single.high]).all()
    first, second = (stratified_bootstrap(np.random.default_rng(5), STRATA, iqm) for _ in range(2))
    assert first == second


def test_performance_profile():
    profile = performance_profile(np.random.default_rng(0), STRATA, [-1, 0, 3, 12, 14])
    np.testing.assert_allclose(profile.estimate, [1, 8 / 9, 3 / 9, 1 / 9, 0])  # above, not at
    np.testing.assert_array_equal([profile.low[0], profile.high[0]], [1, 1])
    np.testing.assert_array_equal([profile.low[2], profile.high[2]], [3 / 9, 3 / 9])  # the whole game, always
    assert profile.low[3] == 0
    assert profile.high[3] == pytest.approx(3 / 9)


# The paper's tables.

RANDOM, HUMAN, BOOT, DDQN, NATURE = np.transpose(list(PAPER_SCORES.values()))


def test_tables_are_complete():
    assert len(PAPER_SCORES) == 49
    assert len(PAPER_AREAS) == 14
    assert PAPER_AREAS.keys() < PAPER_SCORES.keys()
    breakout = PAPER_SCORES["Breakout"]
    assert breakout == (1.7, 30.5, 855.0, 437.0, 401.2)
    assert (breakout.random, breakout.human, breakout.boot, breakout.ddqn, breakout.nature) == breakout
    beam_rider = PAPER_AREAS["Beam Rider"]
    assert beam_rider == (0.11, 0.09, 0.24, 0.46, 0.79)
    assert (beam_rider.dqn, beam_rider.boot, beam_rider.boot_plus) == beam_rider[2:]


def test_averages_of_the_areas_are_not_all_as_printed():
    means = np.mean(list(PAPER_AREAS.values()), axis=0)
    np.testing.assert_allclose(means, [0.2907, 0.3729, 0.3429, 0.4393, 0.6193], atol=5e-5)
    assert PRINTED_AVERAGE == (0.29, 0.37, 0.35, 0.41, 0.62)


def test_table_of_scores_says_similar_peaks():
    assert [np.sum(BOOT > DDQN), np.sum(BOOT < DDQN), np.sum(BOOT == DDQN)] == [24, 24, 1]
    strata = [[*normalised(column, RANDOM, HUMAN)[:, None]] for column in (BOOT, DDQN, NATURE)]
    np.testing.assert_allclose([median_of_games(s) for s in strata], [1.535, 1.642, 0.793], atol=5e-4)
    np.testing.assert_allclose([mean_of_games(s) for s in strata[:2]], [6.11, 5.51], atol=5e-3)
    assert [np.sum(BOOT >= HUMAN), np.sum(DDQN >= HUMAN)] == [33, 32]
    ratios = normalised(BOOT, RANDOM, DDQN)
    assert np.median(ratios[np.isfinite(ratios)]) == pytest.approx(0.996, abs=5e-4)


def test_areas_times_nature_scores_are_scores():
    """That AUC-100 has no random offset: in Asteroids the mean score is below that of random play."""
    asteroids = PAPER_AREAS["Asteroids"].boot * PAPER_SCORES["Asteroids"].nature
    assert asteroids == pytest.approx(472, abs=1)
    assert asteroids < PAPER_SCORES["Asteroids"].random


def test_games_are_those_of_the_table():
    assert list(GAMES.values()) == list(PAPER_SCORES)
