"""Ways to fit a function and say how uncertain it is, behind one interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from bootdqn.regression import BootstrapRegressor, DropoutRegressor
from bootdqn.regression.data import true_mean, true_std
from bootdqn.regression.estimators import BootstrapWeights

Floats = NDArray[np.float64]


class Posterior(NamedTuple):
    """What a method holds possible after it has seen the data."""

    moments: Callable[[Floats], tuple[Floats, Floats]]
    """Inputs [N] -> mean and standard deviation of the function [N]."""
    sample: Callable[[Floats, int], Floats]
    """Inputs [N], n -> functions [n, N]."""
    noise_std: Callable[[Floats], Floats]
    """Inputs [N] -> standard deviation [N] of observations by the method's own account; zero if it has none."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What generated the data: the best that any method could say."""

    def fit(self, x: Floats, y: Floats, seed: int) -> Posterior:
        """The same whatever the data."""
        return Posterior(
            lambda x: (true_mean(x), np.zeros(len(x))),
            lambda x, n: np.tile(true_mean(x), (n, 1)),
            true_std,
        )


@dataclass(frozen=True, kw_only=True)
class GaussianProcess:
    """Scikit-learn's, with a squared-exponential kernel and constant noise, both by maximum likelihood."""

    num_restarts: int = 10
    """Of the maximisation."""

    def fit(self, x: Floats, y: Floats, seed: int) -> Posterior:
        """The posterior of the function; noise is kept apart."""
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

        return Posterior(moments, sample, lambda x: np.full(len(x), np.sqrt(noise)))


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """`BootstrapRegressor`; fields as there."""

    weights: BootstrapWeights = "resample"
    num_members: int = 50
    trunk_hidden: tuple[int, ...] = ()
    hidden: tuple[int, ...] = (50, 50)
    num_steps: int = 1000

    def fit(self, x: Floats, y: Floats, seed: int) -> Posterior:
        """All members; samples are the first of them."""
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
    """`DropoutRegressor`; fields as there."""

    rate: float = 0.1
    weight_decay: float = 1e-3
    hidden: tuple[int, ...] = (50, 50)
    num_steps: int = 1000

    def fit(self, x: Floats, y: Floats, seed: int) -> Posterior:
        """One network, and what dropout makes of it."""
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
) -> Posterior:
    return Posterior(lambda x: regressor.predict(x[:, None], return_std=True), sample, lambda x: np.zeros(len(x)))
