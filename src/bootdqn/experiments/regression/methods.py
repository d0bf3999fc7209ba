"""Methods that fit a function and estimate its uncertainty, behind one interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from bootdqn.regression import BootstrapRegressor, DropoutRegressor
from bootdqn.regression.data import true_mean, true_std
from bootdqn.regression.estimators import BootstrapWeights, Floats


class FunctionPosterior(NamedTuple):
    """The functions that a method considers possible after it has seen the data."""

    moments: Callable[[Floats], tuple[Floats, Floats]]
    """Takes inputs [N] and returns the mean and the standard deviation of the function there [N]."""
    sample: Callable[[Floats, int], Floats]
    """Takes inputs [N] and a number n, and returns the values of n sampled functions there [n, N]."""
    noise_std: Callable[[Floats], Floats]
    """Takes inputs [N] and returns the method's estimate of the standard deviation of noise [N], or zeros."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The distribution that generated the data, which is the best that any method could find."""

    def fit(self, x: Floats, y: Floats, seed: int) -> FunctionPosterior:
        """Return the true mean and noise, whatever the data."""
        return FunctionPosterior(
            lambda x: (true_mean(x), np.zeros(len(x))),
            lambda x, n: np.tile(true_mean(x), (n, 1)),
            true_std,
        )


@dataclass(frozen=True, kw_only=True)
class GaussianProcess:
    """Scikit-learn's Gaussian process, with a squared-exponential kernel and noise by maximum likelihood."""

    num_restarts: int = 10
    """The number of restarts of the maximisation."""

    def fit(self, x: Floats, y: Floats, seed: int) -> FunctionPosterior:
        """Fit the kernel, and return the posterior of the function without noise."""
        # Starts are drawn within these bounds; within scikit-learn's own, ten decades, some miss the maximum.
        kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(0.1, (1e-2, 1e1)) + WhiteKernel(0.1, (1e-6, 1e1))
        process = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=self.num_restarts, random_state=seed
        ).fit(x[:, None], y)
        scale = process._y_train_std
        fitted: Any = process.kernel_
        noise = np.square(scale) * fitted.k2.noise_level

        def moments(x: Floats) -> tuple[Floats, Floats]:
            mean, std = process.predict(x[:, None], return_std=True)
            return mean, np.sqrt(np.maximum(np.square(std) - noise, 0))

        def sample(x: Floats, n: int) -> Floats:
            mean, covariance = process.predict(x[:, None], return_cov=True)
            rng = np.random.default_rng(seed)
            return rng.multivariate_normal(mean, covariance - noise * np.eye(len(x)), n, method="eigh")

        return FunctionPosterior(moments, sample, lambda x: np.full(len(x), np.sqrt(noise)))


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """A `BootstrapRegressor`, with its fields."""

    weights: BootstrapWeights = "resample"
    num_members: int = 50
    trunk_hidden: tuple[int, ...] = ()
    hidden: tuple[int, ...] = (50, 50)
    num_steps: int = 1000

    def fit(self, x: Floats, y: Floats, seed: int) -> FunctionPosterior:
        """Fit all members, the first of which serve as samples."""
        regressor = BootstrapRegressor(
            self.num_members,
            hidden=self.hidden,
            trunk_hidden=self.trunk_hidden,
            weights=self.weights,
            num_steps=self.num_steps,
            random_state=seed,
        )
        return _of_networks(regressor.fit(x[:, None], y), lambda x, n: regressor.predict_members(x[:, None])[:n])


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """A `DropoutRegressor`, with its fields."""

    rate: float = 0.1
    weight_decay: float = 1e-3
    hidden: tuple[int, ...] = (50, 50)
    num_steps: int = 1000

    def fit(self, x: Floats, y: Floats, seed: int) -> FunctionPosterior:
        """Fit one network, whose samples are drawn by dropout."""
        regressor = DropoutRegressor(
            self.rate,
            hidden=self.hidden,
            weight_decay=self.weight_decay,
            num_steps=self.num_steps,
            random_state=seed,
        )
        return _of_networks(
            regressor.fit(x[:, None], y), lambda x, n: regressor.sample(x[:, None], n, random_state=seed)
        )


Method = Truth | GaussianProcess | Bootstrap | Dropout


def _of_networks(
    regressor: BootstrapRegressor | DropoutRegressor, sample: Callable[[Floats, int], Floats]
) -> FunctionPosterior:
    return FunctionPosterior(
        lambda x: regressor.predict(x[:, None], return_std=True), sample, lambda x: np.zeros(len(x))
    )
