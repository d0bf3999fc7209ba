"""Estimators that say how uncertain they are, for use like any other of scikit-learn's."""

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

from bootdqn.masks import make_mask
from bootdqn.regression.networks import Layer, Layers, fit_dropout, fit_members, forward, make_layers, make_members

BootstrapWeights = Literal["resample", "poisson", "exponential", "ones"]
Floats = NDArray[np.float64]
_UNITS_AT_ONCE = 10**7
"""What prediction computes at once, so that it needs little memory however many inputs there are."""
_validate: Any = validate_data
"""Its types are not declared, and guessed wrongly from its defaults."""


class _NetworkRegressor(RegressorMixin, BaseEstimator, ABC):
    """What the estimators have in common: standardised data, and moments of what several networks say."""

    learning_rate: float
    num_steps: int
    random_state: Any

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Mean [N] at inputs X [N, in], and the standard deviation [N] of what is not known about it.

        The deviation is that of the function: it has no term for the noise of single observations.
        """
        draws = self._draws(X)
        return (draws.mean(axis=0), draws.std(axis=0)) if return_std else draws.mean(axis=0)

    @abstractmethod
    def _draws(self, X: ArrayLike) -> Floats:
        """The functions [draws, N] whose moments `predict` returns."""

    def _begin(self, X: ArrayLike, y: ArrayLike, **sizes: Sequence[int]) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Check parameters and data; a key, and inputs and outputs brought to mean 0 and variance 1."""
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
        """Keep trained layers in double precision: predictions do not depend on what is predicted beside them."""
        trained = tuple(Layer(*(np.asarray(part, np.float64) for part in layer)) for layer in layers)
        if not all(np.isfinite(part).all() for layer in trained for part in layer):
            raise ValueError(
                "training diverged, weights are no longer finite; "
                f"try a learning_rate smaller than {self.learning_rate}"
            )
        self.layers_ = trained

    def _outputs(self, X: ArrayLike, factors: Sequence[Floats] | None = None) -> Floats:
        """What the networks say [draws, N], in the units of the data."""
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
    """Networks that each learn from their own resample of the data; where they differ, the data says little.

    Inputs and outputs are brought to mean 0 and variance 1 for training, which is by Adam on all data, with a
    learning rate that falls to zero along a cosine. All members train at once.

    Args:
        num_members: how many networks.
        hidden: units of every hidden layer of a member.
        trunk_hidden: units of hidden layers that all members share, before their own; none by default.
        weights: how a member's data is drawn: `resample` with replacement, or independent `poisson` or
            `exponential` weights of mean 1 for every point; `ones` gives all of it to every member, which then
            differ by their initial weights alone. Of very few points, `poisson` may leave a member none.
        learning_rate: at the start.
        num_steps: of the optimizer.
        random_state: of initial weights and resamples, as in scikit-learn; by default always the same.

    Attributes:
        weights_: of every point for every member [K, N].
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
        """What every member says [K, N] at inputs X [N, in]."""
        return self._outputs(X)

    def sample(self, X: ArrayLike, n: int = 1, random_state: int | np.random.RandomState | None = 0) -> Floats:
        """Functions drawn from what the members hold possible, at inputs X [N, in]: n of them, [n, N].

        As with scikit-learn's Gaussian process, the same ones every time unless `random_state` differs.
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
        rate: probability of a hidden unit to be dropped.
        hidden: units of every hidden layer.
        weight_decay: weight of the sum of squared weights in the loss, beside the mean squared error.
        num_draws: functions behind the moments that `predict` returns.
        learning_rate: at the start.
        num_steps: of the optimizer.
        random_state: of initial weights and of what is dropped, as in scikit-learn; by default always the same.
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
        """Functions that dropout draws, at inputs X [N, in]: n of them, [n, N].

        As with scikit-learn's Gaussian process, the same ones every time unless `random_state` differs.
        """
        _require_count("n", n)
        check_is_fitted(self)
        rng = check_random_state(random_state)
        factors = [
            (rng.random_sample((n, 1, layer.weight.shape[-1])) >= self.rate_) / (1 - self.rate_)
            for layer in self.layers_[:-1]
        ]
        outputs = self._outputs(X, factors)
        return (
            outputs if outputs.ndim == 2 else np.tile(outputs, (n, 1))
        )  # without hidden layers, nothing is dropped

    def _draws(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        return self.sample(X, self.num_draws, self.draws_seed_)


def draw_weights(key: jax.Array, kind: BootstrapWeights, num_members: int, num_points: int) -> jax.Array:
    """Weights [K, N] of every point in every member's loss."""
    if kind == "resample":
        drawn = jax.random.randint(key, (num_members, num_points), 0, num_points)
        return jax.vmap(lambda points: jnp.bincount(points, length=num_points))(drawn).astype(jnp.float32)
    return jax.vmap(make_mask(kind, num_members, 1.0))(jax.random.split(key, num_points)).T


def _standard(values: Floats) -> tuple[Any, Any]:
    """Mean, and standard deviation or 1 where that is zero, or what rounding makes of it."""
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
    """As scikit-learn, say of a wrong parameter what was expected and what came."""
    if not condition:
        raise ValueError(f"{name} must be {expected}, not {value!r}")
