"""Regressors that estimate their own uncertainty, with the interface of scikit-learn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, Self, get_args, overload

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bootdqn.core.masks import make_mask
from bootdqn.regression.networks import Layer, Layers, fit_dropout, fit_members, forward, make_layers, make_members

BootstrapWeights = Literal["resample", "poisson", "exponential", "ones"]
Floats = NDArray[np.float64]
_UNITS_AT_ONCE = 10**7
"""The number of units that prediction computes at once, which bounds its memory for any number of inputs."""
_validate: Any = validate_data
"""The function without its types, which type checkers guess wrongly from its defaults."""


class _NetworkRegressor(RegressorMixin, BaseEstimator, ABC):
    """The common part of both estimators: standardised data, and moments over the outputs of several networks."""

    learning_rate: float
    num_steps: int
    random_state: Any

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return the mean [N] at inputs X [N, in] and, if asked for, the standard deviation of the function [N].

        The deviation is the uncertainty of the function: it has no term for the noise of single observations.
        """
        draws = self._draws(X)
        return (draws.mean(axis=0), draws.std(axis=0)) if return_std else draws.mean(axis=0)

    @abstractmethod
    def _draws(self, X: ArrayLike) -> Floats:
        """Return the functions [draws, N] whose moments `predict` returns."""

    def _begin(self, X: ArrayLike, y: ArrayLike, **sizes: Sequence[int]) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Check parameters and data; return a key, and inputs and outputs scaled to mean 0 and variance 1."""
        rate = self.learning_rate
        _require(_is_number(rate) and 0 < rate < np.inf, "learning_rate", "a positive number", rate)
        _require_count("num_steps", self.num_steps)
        for name, widths in sizes.items():
            right = np.iterable(widths) and all(_is_count(width) for width in widths)
            _require(right, name, "a sequence of positive integers", widths)
        inputs, outputs = _validate(self, X, y, y_numeric=True, ensure_min_samples=2, dtype=np.float64)
        self.x_mean_, self.x_scale_ = _standard(inputs)
        self.y_mean_, self.y_scale_ = _standard(outputs)
        key = jax.random.key(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        outputs = (outputs - self.y_mean_) / self.y_scale_
        return key, jnp.asarray(self._standardised(inputs), jnp.float32), jnp.asarray(outputs, jnp.float32)

    def _keep(self, layers: Layers) -> None:
        """Keep trained layers in double precision, so that a prediction does not depend on others in its batch."""
        trained = tuple(Layer(*(np.asarray(part, np.float64) for part in layer)) for layer in layers)
        if not all(np.isfinite(part).all() for layer in trained for part in layer):
            raise ValueError(
                "training diverged, weights are no longer finite; "
                f"try a learning_rate smaller than {self.learning_rate}"
            )
        self.layers_ = trained

    def _outputs(self, X: ArrayLike, factors: Sequence[Floats] | None = None) -> Floats:
        """Return the outputs of the networks [draws, N], in the units of the data."""
        check_is_fitted(self)
        inputs = self._standardised(_validate(self, X, reset=False, dtype=np.float64))
        num_draws = max([1, *(len(part) for part in (*self.layers_[-1], *(factors or ())) if part.ndim == 3)])
        widest = max(layer.weight.shape[-1] for layer in self.layers_)
        rows = max(1, _UNITS_AT_ONCE // (num_draws * widest))
        parts = [forward(self.layers_, inputs[i : i + rows], factors) for i in range(0, len(inputs), rows)]
        return np.concatenate(parts, axis=-1) * self.y_scale_ + self.y_mean_

    def _standardised(self, X: Floats) -> Floats:
        return (X - self.x_mean_) / self.x_scale_


class BootstrapRegressor(_NetworkRegressor):
    """An ensemble of networks that each learn from their own resample of the data and differ where data is scarce.

    Inputs and outputs are scaled to mean 0 and variance 1 for training. Every step of Adam uses all data, and the
    learning rate falls to zero along a cosine. All members train at once.

    Args:
        num_members: the number of networks K.
        hidden: the number of units of every hidden layer of a member.
        trunk_hidden: the number of units of hidden layers that all members share before their own, if any.
        weights: how the data of a member is drawn: `resample` with replacement, or independent `poisson` or
            `exponential` weights of mean 1 for every point; `ones` gives all data to every member, which then
            differ by their initial weights alone. If there are very few points, `poisson` may leave a member none.
        learning_rate: the learning rate at the start.
        num_steps: the number of steps of the optimizer.
        random_state: the seed of initial weights and resamples, as in scikit-learn; by default always the same.

    Attributes:
        weights_: the weights of every point for every member [K, N].
    """

    def __init__(
        self,
        num_members: int = 50,
        *,
        hidden: Sequence[int] = (50, 50),
        trunk_hidden: Sequence[int] = (),
        weights: BootstrapWeights = "resample",
        learning_rate: float = 1e-2,
        num_steps: int = 1000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.num_members = num_members
        self.hidden = hidden
        self.trunk_hidden = trunk_hidden
        self.weights: BootstrapWeights = weights
        self.learning_rate = learning_rate
        self.num_steps = num_steps
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train all members on inputs X [N, in] and outputs y [N]."""
        _require_count("num_members", self.num_members)
        kinds = get_args(BootstrapWeights)
        known = isinstance(self.weights, str) and self.weights in kinds
        _require(known, "weights", f"one of {', '.join(kinds)}", self.weights)
        key, inputs, outputs = self._begin(X, y, hidden=self.hidden, trunk_hidden=self.trunk_hidden)
        weights_key, trunk_key, member_key = jax.random.split(key, 3)
        weights = draw_weights(weights_key, self.weights, self.num_members, len(outputs))
        trunk = (inputs.shape[1], *self.trunk_hidden)
        member_keys = jax.random.split(member_key, self.num_members)
        layers = make_members(trunk_key, member_keys, trunk, (trunk[-1], *self.hidden, 1))
        self._keep(fit_members(layers, inputs, outputs, weights, self.learning_rate, self.num_steps))
        self.weights_ = np.asarray(weights, np.float64)
        return self

    def predict_members(self, X: ArrayLike) -> Floats:
        """Return the outputs of every member [K, N] at inputs X [N, in]."""
        return self._outputs(X)

    def sample(self, X: ArrayLike, n: int = 1, random_state: int | np.random.RandomState | None = 0) -> Floats:
        """Draw n members at random, and return their outputs [n, N] at inputs X [N, in].

        As with scikit-learn's Gaussian process, they are the same every time unless `random_state` differs.
        """
        _require_count("n", n)
        members = self.predict_members(X)
        return members[check_random_state(random_state).randint(len(members), size=n)]

    def _draws(self, X: ArrayLike) -> Floats:
        return self.predict_members(X)


class DropoutRegressor(_NetworkRegressor):
    """One network whose hidden units are dropped at random, in training and in prediction (Monte Carlo dropout).

    A drawn function drops the same units at all inputs. Inputs themselves are never dropped. Data and training are
    as in `BootstrapRegressor`.

    Args:
        rate: the probability that a hidden unit is dropped.
        hidden: the number of units of every hidden layer.
        weight_decay: the factor of the sum of squared weights in the loss, beside the mean squared error.
        num_draws: the number of drawn functions behind the moments that `predict` returns.
        learning_rate: the learning rate at the start.
        num_steps: the number of steps of the optimizer.
        random_state: the seed of initial weights and of dropout, as in scikit-learn; by default always the same.
    """

    def __init__(
        self,
        rate: float = 0.1,
        *,
        hidden: Sequence[int] = (50, 50),
        weight_decay: float = 1e-3,
        num_draws: int = 200,
        learning_rate: float = 1e-2,
        num_steps: int = 1000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.rate = rate
        self.hidden = hidden
        self.weight_decay = weight_decay
        self.num_draws = num_draws
        self.learning_rate = learning_rate
        self.num_steps = num_steps
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on inputs X [N, in] and outputs y [N]."""
        _require(_is_number(self.rate) and 0 <= self.rate < 1, "rate", "at least 0 and less than 1", self.rate)
        decay = self.weight_decay
        _require(_is_number(decay) and 0 <= decay < np.inf, "weight_decay", "zero or more, and finite", decay)
        _require_count("num_draws", self.num_draws)
        key, inputs, outputs = self._begin(X, y, hidden=self.hidden)
        layers_key, training_key, draws_key = jax.random.split(key, 3)
        layers = make_layers(layers_key, (inputs.shape[1], *self.hidden, 1))
        self._keep(
            fit_dropout(
                training_key,
                layers,
                inputs,
                outputs,
                self.rate,
                self.weight_decay,
                self.learning_rate,
                self.num_steps,
            )
        )
        self.rate_ = self.rate
        self.draws_seed_ = int(jax.random.randint(draws_key, (), 0, np.iinfo(np.int32).max))
        return self

    def sample(self, X: ArrayLike, n: int = 1, random_state: int | np.random.RandomState | None = 0) -> Floats:
        """Draw n functions by dropout, and return their values [n, N] at inputs X [N, in].

        As with scikit-learn's Gaussian process, they are the same every time unless `random_state` differs.
        """
        _require_count("n", n)
        check_is_fitted(self)
        rng = check_random_state(random_state)
        factors = [
            (rng.random_sample((n, 1, layer.weight.shape[-1])) >= self.rate_) / (1 - self.rate_)
            for layer in self.layers_[:-1]
        ]
        outputs = self._outputs(X, factors)
        # Without hidden layers nothing is dropped, and all functions are the same.
        return outputs if outputs.ndim == 2 else np.tile(outputs, (n, 1))

    def _draws(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        return self.sample(X, self.num_draws, self.draws_seed_)


def draw_weights(key: jax.Array, kind: BootstrapWeights, num_members: int, num_points: int) -> jax.Array:
    """Draw the weights [K, N] of every point in the loss of every member."""
    if kind == "resample":
        drawn = jax.random.randint(key, (num_members, num_points), 0, num_points)
        return jax.vmap(lambda points: jnp.bincount(points, length=num_points))(drawn).astype(jnp.float32)
    return jax.vmap(make_mask(kind, num_members, 1.0))(jax.random.split(key, num_points)).T


def _standard(values: Floats) -> tuple[Any, Any]:
    """Return the mean, and the standard deviation or 1 where that is zero but for rounding."""
    deviation = values.std(axis=0)
    rounding = 10 * np.finfo(float).eps * np.abs(values).max(axis=0)
    return values.mean(axis=0), np.where(deviation > rounding, deviation, 1.0)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value > 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _require_count(name: str, value: Any) -> None:
    _require(_is_count(value), name, "a positive integer", value)


def _require(condition: bool, name: str, expected: str, value: Any) -> None:
    """Refuse a wrong parameter as scikit-learn does, with the expected and the given value."""
    if not condition:
        raise ValueError(f"{name} must be {expected}, not {value!r}")
