"""Uncertainty in regression: the data, the estimators, and what the paper says of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import base
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from bootdqn.experiments.regression.methods import Bootstrap, Dropout, FunctionPosterior, GaussianProcess, Truth
from bootdqn.experiments.regression.trials import RegressionConfig, run, sweep
from bootdqn.regression import BootstrapRegressor, DropoutRegressor
from bootdqn.regression.data import draw_inputs, draw_outputs, true_mean, true_std
from bootdqn.regression.estimators import draw_weights
from bootdqn.regression.networks import fit_dropout, fit_members, forward, make_layers, make_members
from trials import context

clone: Any = base.clone
QUICK_BOOTSTRAP = BootstrapRegressor(3, hidden=(20,), learning_rate=2e-2, num_steps=300)
QUICK_DROPOUT = DropoutRegressor(0.05, hidden=(20,), num_draws=20, learning_rate=2e-2, num_steps=300)
QUICK = pytest.mark.parametrize("estimator", [QUICK_BOOTSTRAP, QUICK_DROPOUT], ids=["bootstrap", "dropout"])


def paper_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed).spawn(1)[0]
    x = draw_inputs(rng)
    return x[:, None], draw_outputs(rng, x)


# The data of appendix A.


def test_data_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    x = draw_inputs(rng, 40_000)
    assert len(draw_inputs(rng)) == 20
    low, high = x[x < 0.7], x[x > 0.7]
    assert low.min() > 0
    assert (low.max(), high.min()) == pytest.approx((0.6, 0.8), abs=1e-3)
    assert low.max() <= 0.6
    assert 0.8 <= high.min() < high.max() < 1
    assert len(high) / len(x) == pytest.approx(0.25, abs=0.01)  # uniform on the union
    # One draw by hand: w appears in both sines and after them.
    w = np.random.default_rng(3).normal(0, 0.03, 1)
    expected = 0.5 + np.sin(4 * (0.5 + w)) + np.sin(13 * (0.5 + w)) + w
    np.testing.assert_array_equal(draw_outputs(np.random.default_rng(3), [0.5]), expected)


def test_true_moments_are_those_of_many_draws():
    x = np.array([0.05, 0.3, 0.59, 0.75, 1.0])
    y = draw_outputs(np.random.default_rng(0), np.tile(x, (200_000, 1)))
    np.testing.assert_allclose(true_mean(x), y.mean(axis=0), atol=5e-3)
    np.testing.assert_allclose(true_std(x), y.std(axis=0), rtol=1e-2)


# The estimators.


@pytest.mark.integration
@QUICK
def test_scikit_learn_accepts_them(estimator):
    results = check_estimator(estimator, on_skip=None)  # raises at the first check that fails
    status = [result["status"] for result in results]
    assert status.count("passed") >= 45
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    # These need packages, or an environment variable, that need not be there.
    assert skipped <= {"check_array_api_input", "check_regressor_data_not_an_array"}


@QUICK
def test_bad_input_gets_scikit_learns_words(estimator):
    x, y = paper_data(0)
    estimator = clone(estimator)
    for method in (estimator.predict, estimator.sample):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            method(x)
    cases = [
        (np.where(x == x[3], np.nan, x), y, "contains NaN"),
        (x, np.where(y == y[3], np.inf, y), "infinity"),
        (x[:, 0], y, "Expected 2D array, got 1D array"),
        (x, y[:-1], "inconsistent numbers of samples"),
        (x[:1], y[:1], "1 sample.* while a minimum of 2 is required"),
        (x, np.stack([y, y], 1), "1d array"),
    ]
    for inputs, outputs, message in cases:
        with pytest.raises(ValueError, match=message):
            estimator.fit(inputs, outputs)
    estimator.fit(x, y)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 1 feature"):
        estimator.predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="n must be a positive integer, not 0"):
        estimator.sample(x, 0)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (BootstrapRegressor(0), "num_members must be a positive integer, not 0"),
        (BootstrapRegressor(hidden=50), "hidden must be a sequence of positive integers, not 50"),  # type: ignore
        (BootstrapRegressor(trunk_hidden=(5, -1)), "trunk_hidden must be .* not "),
        (BootstrapRegressor(weights="with"), "weights must be one of resample, .* not 'with'"),  # type: ignore
        (BootstrapRegressor(learning_rate=0), "learning_rate must be a positive number, not 0"),
        (DropoutRegressor(1.0), "rate must be at least 0 and less than 1, not 1.0"),
        (DropoutRegressor(weight_decay=-1), "weight_decay must be zero or more, and finite, not -1"),
        (DropoutRegressor(weight_decay=np.inf), "weight_decay must be zero or more, and finite, not inf"),
        (DropoutRegressor(rate="0.1"), "rate must be at least 0 and less than 1, not '0.1'"),  # type: ignore
        (BootstrapRegressor(learning_rate=None), "learning_rate must be a positive number, not None"),  # type: ignore
        (BootstrapRegressor(weights=np.ones(20)), "weights must be one of resample"),  # type: ignore
        (BootstrapRegressor(True), "num_members must be a positive integer, not True"),
        (DropoutRegressor(num_steps=2.5), "num_steps must be a positive integer, not 2.5"),  # type: ignore
        (BootstrapRegressor(2, hidden=(5,), learning_rate=1e30), "training diverged.*smaller than 1e\\+30"),
    ],
)
def test_wrong_parameters_are_refused(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(*paper_data(0))


def test_a_fit_that_failed_leaves_the_one_before():
    x, y = paper_data(0)
    estimator = clone(QUICK_BOOTSTRAP).fit(x, y)
    before = estimator.predict(x)
    with pytest.raises(ValueError, match="training diverged"):
        estimator.set_params(learning_rate=1e30).fit(x, y)
    np.testing.assert_array_equal(estimator.predict(x), before)


@QUICK
def test_a_constant_column_says_nothing(estimator):
    x, y = paper_data(0)
    with_constant = np.column_stack([x, np.full(20, 0.1)])  # whose standard deviation is not quite zero
    estimator = clone(estimator).fit(with_constant, y)
    moved = estimator.predict(with_constant + np.array([0, 1e-6]))
    np.testing.assert_allclose(moved, estimator.predict(with_constant), atol=1e-4)
    constant = clone(estimator).fit(x, np.full(20, 0.1)).predict(x)
    np.testing.assert_allclose(constant, 0.1, atol=0.05)


@QUICK
def test_many_inputs_are_predicted_in_parts(estimator, monkeypatch):
    x, y = paper_data(0)
    estimator = clone(estimator).fit(x, y)
    whole = estimator.predict(x, return_std=True), estimator.sample(x, 3)
    monkeypatch.setattr("bootdqn.regression.estimators._UNITS_AT_ONCE", 20 * 20 * 3)
    parts = estimator.predict(x, return_std=True), estimator.sample(x, 3)
    np.testing.assert_allclose(parts[0], whole[0], atol=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-12)
    parts[1][0] += 1  # the caller's own


@pytest.mark.integration
@QUICK
def test_they_work_in_a_search(estimator):
    search = GridSearchCV(estimator, {"learning_rate": [1e-6, 2e-2]}, cv=2).fit(*paper_data(1))
    assert search.best_params_ == {"learning_rate": 2e-2}


@QUICK
def test_units_of_the_data_do_not_matter(estimator):
    x, y = paper_data(2)
    mean, std = clone(estimator).fit(x, y).predict(x, return_std=True)
    other_mean, other_std = clone(estimator).fit(1e4 * x - 7, 1e-3 * y + 5).predict(1e4 * x - 7, return_std=True)
    np.testing.assert_allclose(1e3 * (other_mean - 5), mean, atol=0.05)
    np.testing.assert_allclose(1e3 * other_std, std, atol=0.05)


def test_every_member_has_a_resample_of_its_own():
    weights = np.asarray(draw_weights(jax.random.key(0), "resample", 500, 20))
    assert (weights == weights.round()).all()
    assert (weights.sum(axis=1) == 20).all()
    assert len({tuple(row) for row in weights}) == 500
    # Of 20 drawn with replacement, a point is missed with probability 0.95^20.
    assert np.mean(weights == 0) == pytest.approx(0.95**20, abs=0.015)
    np.testing.assert_allclose(weights.mean(axis=0), 1, atol=0.2)


@pytest.mark.parametrize(("kind", "variance"), [("poisson", 1.0), ("exponential", 1.0), ("ones", 0.0)])
def test_other_weights_have_mean_one(kind, variance):
    weights = np.asarray(draw_weights(jax.random.key(0), kind, 400, 50))
    assert weights.shape == (400, 50)
    assert weights.mean() == pytest.approx(1, abs=0.03)
    assert weights.var() == pytest.approx(variance, abs=0.06)
    assert (weights == weights.round()).all() == (kind != "exponential")
    if variance:  # independent for members and for points
        assert np.abs(np.corrcoef(weights[:30]) - np.eye(30)).max() < 0.7
        assert np.abs(np.corrcoef(weights.T[:30]) - np.eye(30)).max() < 0.25


def fit_small(keys, x, y, weights, num_steps=200):
    layers = make_members(jax.random.key(9), keys, (1,), (1, 8, 1))
    return fit_members(layers, jnp.asarray(x), jnp.asarray(y), jnp.asarray(weights), 1e-2, num_steps)


@pytest.mark.integration
def test_a_member_learns_from_its_resample_and_nothing_else():
    x, y = (values.astype(np.float32) for values in paper_data(0))
    keys = jax.random.split(jax.random.key(1), 4)
    weights = np.array(draw_weights(jax.random.key(2), "resample", 4, 20))
    together = forward(fit_small(keys, x, y, weights), x)
    for member in range(4):
        # The same as one network alone, given every point as often as it was drawn.
        drawn = np.repeat(np.arange(20), weights[member].astype(int))
        alone = forward(fit_small(keys[member : member + 1], x[drawn], y[drawn], np.ones((1, 20))), x)[0]
        np.testing.assert_allclose(together[member], alone, atol=1e-4)
    # A point that a member did not draw could have been anything.
    point = int(np.flatnonzero((weights[0] == 0) & (weights[1] > 0))[0])
    other = forward(fit_small(keys, x, np.where(np.arange(20) == point, 50, y).astype(np.float32), weights), x)
    np.testing.assert_array_equal(other[0], together[0])
    assert np.abs(other[1] - together[1]).max() > 1


def test_equal_members_stay_equal():
    x, y = (values.astype(np.float32) for values in paper_data(0))
    keys = jnp.tile(jax.random.key(5), 3)
    members = forward(fit_small(keys, x, y, np.ones((3, 20))), x)
    np.testing.assert_array_equal(members, jnp.tile(members[:1], (3, 1)))
    differing = forward(fit_small(jax.random.split(keys[0], 3), x, y, np.ones((3, 20))), x)
    assert jnp.std(differing, axis=0).max() > 1e-3


@QUICK
def test_the_same_seed_gives_the_same_bits(estimator):
    x, y = paper_data(0)
    first, second = (clone(estimator).fit(x, y).predict(x, return_std=True) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = clone(estimator).set_params(random_state=1).fit(x, y)
    assert np.abs(other.predict(x) - first[0]).max() > 1e-3


@pytest.mark.integration
def test_members_interpolate_what_has_no_noise():
    x, _ = paper_data(1)
    y = true_mean(x[:, 0])
    estimator = BootstrapRegressor(10).fit(x, y)
    errors = np.abs(estimator.predict_members(x) - y)[estimator.weights_ > 0]
    assert np.sqrt(np.mean(np.square(errors))) < 0.05  # of a standard deviation of about 1
    assert errors.max() < 0.3


@pytest.mark.integration
def test_moments_and_samples_are_those_of_the_members():
    x, y = paper_data(0)
    estimator = clone(QUICK_BOOTSTRAP).set_params(num_members=5).fit(x, y)
    members = estimator.predict_members(x)
    assert members.shape == estimator.weights_.shape == (5, 20)
    mean, std = estimator.predict(x, return_std=True)
    np.testing.assert_array_equal(mean, members.mean(axis=0))
    np.testing.assert_array_equal(std, members.std(axis=0))
    samples = estimator.sample(x, 200, random_state=1)
    drawn = [int(np.flatnonzero((members == sample).all(axis=1))[0]) for sample in samples]
    assert np.bincount(drawn, minlength=5).min() > 20
    assert (estimator.sample(x, 200, random_state=2) != samples).any()


@pytest.mark.integration
def test_a_trunk_is_shared_and_heads_are_not():
    x, y = paper_data(0)
    estimator = BootstrapRegressor(4, trunk_hidden=(6,), hidden=(5,), num_steps=50).fit(x, y)
    assert [layer.weight.shape for layer in estimator.layers_] == [(1, 6), (4, 6, 5), (4, 5, 1)]
    features = np.maximum((x - x.mean()) / x.std() @ estimator.layers_[0].weight + estimator.layers_[0].bias, 0)
    hidden, last = ((layer.weight[2], layer.bias[2]) for layer in estimator.layers_[1:])
    by_hand = (np.maximum(features @ hidden[0] + hidden[1], 0) @ last[0] + last[1])[:, 0] * y.std() + y.mean()
    np.testing.assert_allclose(estimator.predict_members(x)[2], by_hand)
    linear = BootstrapRegressor(4, trunk_hidden=(6,), hidden=(), num_steps=5).fit(x, y)
    assert [layer.weight.shape for layer in linear.layers_] == [(1, 6), (4, 6, 1)]


def test_prediction_and_training_compute_the_same():
    layers = make_layers(jax.random.key(0), (2, 7, 7, 1))
    x = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    by_numpy = forward(jax.tree.map(np.asarray, layers), x)
    assert isinstance(by_numpy, np.ndarray)
    np.testing.assert_allclose(by_numpy, forward(layers, jnp.asarray(x)), rtol=1e-5)


@pytest.mark.integration
def test_without_dropout_there_is_no_spread():
    x, y = paper_data(0)
    estimator = DropoutRegressor(0.0, num_steps=50).fit(x, y)
    assert (estimator.predict(x, return_std=True)[1] < 1e-12).all()
    np.testing.assert_array_equal(estimator.sample(x, 3), np.tile(estimator.sample(x), (3, 1)))
    linear = DropoutRegressor(0.5, hidden=(), num_steps=50).fit(x, y)  # nothing to drop
    assert (linear.predict(x, return_std=True)[1] < 1e-12).all()
    assert DropoutRegressor(0.2, num_steps=50).fit(x, y).predict(x, return_std=True)[1].min() > 1e-3


def test_a_dropout_sample_is_one_function():
    x, y = paper_data(0)
    estimator = clone(QUICK_DROPOUT).fit(x, y)
    samples = estimator.sample(x, 5, random_state=3)
    np.testing.assert_allclose(samples[:, 7:9], estimator.sample(x[7:9], 5, random_state=3))
    # By hand: units are dropped with the given rate, and those kept scaled up.
    kept = np.random.RandomState(3).random_sample((5, 1, 20)) >= 0.05
    first, last = estimator.layers_
    hidden = np.maximum((x - x.mean()) / x.std() @ first.weight + first.bias, 0) * kept / 0.95
    np.testing.assert_allclose(samples, (hidden @ last.weight + last.bias)[..., 0] * y.std() + y.mean())
    many = estimator.sample(x, 20_000, random_state=0)
    whole = (np.maximum((x - x.mean()) / x.std() @ first.weight + first.bias, 0) @ last.weight + last.bias)[:, 0]
    np.testing.assert_allclose(many.mean(axis=0), whole * y.std() + y.mean(), atol=0.02)


@pytest.mark.integration
def test_units_are_dropped_anew_at_every_step_of_training():
    x, y = (jnp.asarray(values, jnp.float32) for values in paper_data(0))
    layers = make_layers(jax.random.key(0), (1, 30, 1))

    def trained(rate: float, num_steps: int):
        return fit_dropout(jax.random.key(1), layers, x, y, rate, 0.0, 1e-2, num_steps)

    kept = np.random.default_rng(0).random((4000, 1, 30)) >= 0.5

    def loss_under_dropout(layers) -> float:
        layers = jax.tree.map(np.asarray, layers)
        return float(np.mean(np.square(forward(layers, np.asarray(x), [kept / 0.5]) - np.asarray(y))))

    # Training with dropout is what makes a network good under it; masks that stay would not do.
    assert loss_under_dropout(trained(0.5, 1000)) < 0.7 * loss_under_dropout(trained(0.0, 1000))
    # Its first step by hand: the gradient of the loss under the mask of step 0, of which Adam keeps the signs.
    mask = jax.random.bernoulli(jax.random.fold_in(jax.random.key(1), 0), 0.5, (20, 30)) / 0.5
    gradient = jax.grad(lambda p: jnp.mean(jnp.square(forward(p, x, [mask]) - y)))(layers)
    for start, end, slope in zip(*map(jax.tree.leaves, (layers, trained(0.5, 1), gradient)), strict=True):
        np.testing.assert_allclose(start - end, 1e-2 * np.sign(slope), atol=1e-4)


def test_the_learning_rate_falls_to_zero():
    x, y = (jnp.asarray(values, jnp.float32) for values in paper_data(0))
    layers = make_members(jax.random.key(0), jax.random.split(jax.random.key(1), 1), (1,), (1, 8, 1))
    trained = fit_members(layers, x, y, jnp.ones((1, 20)), 1e-3, 200)
    way = sum(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (layers, trained)), strict=True))
    assert way < 4 * 0.11  # each number moves at most by the sum of the rates, half of 200 * 1e-3


@pytest.mark.integration
def test_weight_decay_makes_weights_small():
    x, y = paper_data(0)
    sizes = []
    for decay in (0.0, 0.01, 10.0):
        estimator = DropoutRegressor(0.1, weight_decay=decay, num_steps=300).fit(x, y)
        sizes.append(sum(np.sum(np.square(layer.weight)) for layer in estimator.layers_))
    assert sizes[0] > 1.5 * sizes[1] > 0
    assert sizes[2] < 1e-3 * sizes[0]


# What the paper says of them.


def gap_ratio(x, y, seed: int) -> float:
    """Typical spread of the bootstrap in the gap, as a multiple of that on the data."""
    estimator = BootstrapRegressor(20, random_state=seed).fit(x, y)
    gap, data = (estimator.predict(at, return_std=True)[1] for at in (np.linspace(0.6, 0.8, 41)[:, None], x))
    return float(np.median(gap) / np.median(data))


@pytest.mark.integration
def test_the_bootstrap_knows_where_it_has_no_data():
    ratios = [gap_ratio(*paper_data(seed), seed) for seed in range(6)]
    assert np.exp(np.mean(np.log(ratios))) > 2
    assert min(ratios) > 1


@pytest.mark.integration
def test_with_more_data_only_the_gap_stays_uncertain():
    x = draw_inputs(np.random.default_rng(0), 100)
    assert gap_ratio(x[:, None], draw_outputs(np.random.default_rng(1), x), 0) > 3


# The experiment.


def test_the_gaussian_process_keeps_function_and_noise_apart():
    x, y = paper_data(0)
    posterior = GaussianProcess().fit(x[:, 0], y, 0)
    at = np.array([0.3, 0.7, 50.0])
    mean, std = posterior.moments(at)
    samples = posterior.sample(at, 40_000)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(samples.std(axis=0), std, rtol=0.03)
    assert 0 < posterior.noise_std(at)[0] < 1
    assert mean[2] == pytest.approx(y.mean())  # far from data it knows nothing but the mean
    # A sample is smooth: neighbouring points agree far better than their noise.
    close = posterior.sample(np.array([0.3, 0.3001]), 100)
    assert np.abs(np.diff(close, axis=1)).max() < 0.1 * posterior.noise_std(at)[0]


def test_scores_of_the_truth_are_known():
    rows = run(RegressionConfig(method=Truth(), num_seeds=3, curves=True), context())
    assert rows is not None
    fits = [row for row in rows if row["kind"] == "fit"]
    assert [row["seed"] for row in fits] == [0, 1, 2]
    assert all(row["std_gap"] == row["std_data"] == row["look_error"] == row["look_outside"] == 0 for row in fits)
    assert all(row["roughness"] == row["roughness_by_point"] == 1 for row in fits)
    forecasts = [row for row in rows if row["kind"] == "held_out"]
    assert len(forecasts) == 3 * 2 * 2
    for name, level in (("coverage_50", 0.5), ("coverage_90", 0.9)):
        assert np.mean([row[name] for row in forecasts]) == pytest.approx(level, abs=0.04)
    curve = [row for row in rows if row["kind"] == "curve"]
    assert all(row["y"] == row["truth"] == row["sample_1"] for row in curve)
    data = [(row["x"], row["y"]) for row in rows if row["kind"] == "data"]
    x, y = paper_data(0)
    np.testing.assert_allclose(data, np.stack([x[:, 0], y], axis=1), rtol=1e-4)


class HandMade:
    """Off by 0.5 everywhere, uncertain by 1 in the gap and 0.1 elsewhere, with noise of 0.3, and parabolas."""

    def fit(self, x, y, seed):
        def moments(x):
            return true_mean(x) + 0.5, np.where((x >= 0.6) & (x <= 0.8), 1.0, 0.1)

        return FunctionPosterior(moments, lambda x, n: np.tile(40 * x**2, (n, 1)), lambda x: np.full(len(x), 0.3))


def test_scores_of_a_posterior_by_hand():
    method: Any = HandMade()
    rows = run(RegressionConfig(method=method, num_seeds=1, curves=True), context())
    assert rows is not None
    fit = rows[0]
    assert (fit["std_gap"], fit["std_data"], fit["mean_std_gap"], fit["mean_std_data"]) == (1, 0.1, 1, 0.1)
    assert fit["look_error"] == pytest.approx(0.5)
    # The slope of 40 x^2 goes from 0 to 80, that of the true mean up and down: its variation by quadrature.
    grid = np.linspace(0, 1, 20_001)
    truth = np.abs(np.diff(np.gradient(true_mean(grid), grid))).sum()
    assert fit["roughness"] == pytest.approx(80 / truth, rel=0.02)
    assert fit["roughness_by_point"] == fit["roughness"]  # all samples are the same
    forecasts = {(row["region"], row["noise"]): row for row in rows if row["kind"] == "held_out"}
    rng = np.random.default_rng(5)
    for region, x in {"support": draw_inputs(rng, 20_000), "gap": rng.uniform(0.6, 0.8, 20_000)}.items():
        y, function_std = draw_outputs(rng, x), 1.0 if region == "gap" else 0.1
        for noise, noise_std in (("true", true_std(x)), ("own", 0.3)):
            std = np.sqrt(function_std**2 + np.square(noise_std))
            row = forecasts[region, noise]
            error = y - true_mean(x) - 0.5
            assert row["coverage_90"] == pytest.approx(np.mean(np.abs(error) < 1.6449 * std), abs=0.06)
            assert row["coverage_50"] == pytest.approx(np.mean(np.abs(error) < 0.6745 * std), abs=0.07)
            likelihood = np.mean(-0.5 * np.square(error / std) - np.log(std * np.sqrt(2 * np.pi)))
            assert row["log_likelihood"] == pytest.approx(likelihood, rel=0.1, abs=0.1)
            assert row["rmse"] == pytest.approx(0.5)
    outside: Any = HandMade()
    outside.fit = lambda x, y, seed: (
        HandMade().fit(x, y, seed)._replace(moments=lambda x: (np.full(len(x), 99.0), np.ones(len(x))))
    )
    (first, *_) = run(RegressionConfig(method=outside, num_seeds=1, curves=False), context()) or []
    assert (first["look_outside"], fit["look_outside"]) == (1, 0)


@pytest.mark.integration
def test_all_methods_see_the_same_data_and_forecast_the_same_points(monkeypatch):
    seen = []

    def draw(rng, x):
        seen.append(draw_outputs(rng, x))
        return seen[-1]

    monkeypatch.setattr("bootdqn.experiments.regression.trials.draw_outputs", draw)
    for method in (Truth(), GaussianProcess(), Bootstrap(num_members=2, num_steps=2), Dropout(num_steps=2)):
        run(RegressionConfig(method=method, num_seeds=1, curves=False), context())
    for index in range(3):  # data, then new points in both regions
        for other in seen[index::3]:
            np.testing.assert_array_equal(other, seen[index])


def test_a_regression_trial_can_be_stopped():
    assert (
        run(RegressionConfig(method=Truth(), num_seeds=3, curves=False), context(should_stop=lambda: True)) is None
    )


def test_the_papers_networks():
    method = {trial.name: trial.config for trial in sweep("paper")}["bootstrap"]
    assert method.method == Bootstrap(weights="resample", num_members=50, hidden=(50, 50), trunk_hidden=())
    assert method.num_seeds == 20
    defaults = BootstrapRegressor().get_params()
    assert (defaults["num_members"], defaults["hidden"], defaults["weights"]) == (50, (50, 50), "resample")
