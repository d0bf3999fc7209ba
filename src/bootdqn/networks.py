"""Value networks with K heads: separate multilayer perceptrons, or heads on a shared trunk.

Head weights are stacked [K, out, in], so that K heads on shared features are one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero

from bootdqn.types import Encoding


def scale_gradient(x: Array, scale: float) -> Array:
    """`x` itself, to the bit, but the gradient that flows back through it is multiplied by `scale`."""
    scaled = scale * x
    return jax.lax.stop_gradient(x) + (scaled - jax.lax.stop_gradient(scaled))


class StackedLinear(eqx.Module):
    """K affine maps side by side."""

    weight: Array
    """[K, out, in]"""
    bias: Array
    """[K, out]"""

    def __call__(self, x: Array) -> Array:
        """Outputs [K, out] of an input that heads share [in] or that each has its own of [K, in]."""
        if x.ndim == 1:
            return jnp.tensordot(self.weight, x, axes=1) + self.bias
        return jnp.einsum("koi,ki->ko", self.weight, x) + self.bias

    def both(self, x: Array, free: Array) -> tuple[Array, Array]:
        """Outputs [K, out] of two inputs that heads share [in]; no gradient comes from the second."""
        y, y_free = _products(self.weight, x, free)
        return y + self.bias, jax.lax.stop_gradient(y_free + self.bias)

    def one(self, head: Array, x: Array) -> Array:
        """Output [out] of one head for its input [in]."""
        return self.weight[head] @ x + self.bias[head]

    def only(self, heads: Array) -> StackedLinear:
        """Those of some heads."""
        return StackedLinear(self.weight[heads], self.bias[heads])


@jax.custom_jvp
def _products(weight: Array, x: Array, free: Array) -> tuple[Array, Array]:
    """Of weights [K, out, in] with two inputs, which read the weights once; the second has no derivative."""
    y = jnp.tensordot(weight, jnp.stack([x, free], axis=-1), axes=1)
    return y[..., 0], y[..., 1]


@partial(_products.defjvp, symbolic_zeros=True)
def _derivatives_of_products(primals: tuple[Array, ...], tangents: tuple[Any, ...]):
    weight, x, _ = primals
    weight_tangent, x_tangent, _ = tangents
    y, y_free = _products(*primals)
    terms = []
    if not isinstance(weight_tangent, SymbolicZero):
        terms.append(jnp.tensordot(weight_tangent, x, axes=1))
    if not isinstance(x_tangent, SymbolicZero):
        terms.append(jnp.tensordot(weight, x_tangent, axes=1))
    y_tangent = sum(terms[1:], terms[0]) if terms else jnp.zeros_like(y)
    return (y, y_free), (y_tangent, jnp.zeros_like(y_free))


class StackedTable(eqx.Module):
    """`StackedLinear` of a one-hot input, given as its index: a lookup in place of a matrix product.

    An index beyond the table stands for an input of zeros: it reads zeros and changes no row.
    """

    weight: Array
    """[in, K, out]: what one index reads is contiguous."""
    bias: Array
    """[K, out]"""

    def __call__(self, index: Array) -> Array:
        """Outputs [K, out] of one index."""
        return self._row(index) + self.bias

    def one(self, head: Array, index: Array) -> Array:
        """Output [out] of one head."""
        return self._row(index)[head] + self.bias[head]

    def only(self, heads: Array) -> StackedTable:
        """Those of some heads."""
        return StackedTable(self.weight[:, heads], self.bias[heads])

    def _row(self, index: Array) -> Array:
        return jnp.take(self.weight, index, axis=0, mode="fill", fill_value=0)


class QNetwork(eqx.Module):
    """K value functions: an encoding, a trunk that heads share, and the heads."""

    encoding: Encoding = eqx.field(static=True)
    trunk: Callable[[Array], Array]
    """Encoded observation -> features [F]: any Equinox module; the identity for separate networks."""
    layers: tuple[StackedLinear | StackedTable, ...]
    trunk_gradient_scale: float = eqx.field(static=True)

    def __call__(self, obs: Array) -> Array:
        """Values of all actions under all heads [K, A] of one observation."""
        return self.values(self.features(obs))

    def features(self, obs: Array) -> Array:
        """What the heads read: the trunk's features [F], or the observed index where they look it up."""
        if isinstance(self.layers[0], StackedTable):
            return obs
        return scale_gradient(self.trunk(self.encoding(obs)), self.trunk_gradient_scale)

    def values(self, features: Array) -> Array:
        """Values [K, A] from what the heads read."""
        return self._above(self.layers[0](features))

    def values_of_both(self, features: Array, free: Array) -> tuple[Array, Array]:
        """Values of two observations [K, A] from what the heads read; no gradient comes from the second."""
        first = self.layers[0]
        if self.encoding.kind != "pictures" or isinstance(first, StackedTable):
            return self.values(features), jax.lax.stop_gradient(self.values(free))
        # Nearly all numbers are in this layer, and take longer to read than to multiply.
        y, y_free = first.both(features, free)
        return self._above(y), jax.lax.stop_gradient(self._above(y_free))

    def head(self, index: Array, obs: Array) -> Array:
        """Values of all actions [A] under one head, without computing the others."""
        x = self.features(obs)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer.one(index, x))
        return self.layers[-1].one(index, x)

    def only(self, heads: Array) -> QNetwork:
        """Of some heads alone; also of parameters without the rest of the network."""
        return replace(self, layers=tuple(layer.only(heads) for layer in self.layers))

    def _above(self, y: Array) -> Array:
        """Values [K, A] from what the first layer of heads returns."""
        for layer in self.layers[1:]:
            y = layer(jax.nn.relu(y))
        return y


def make_mlp_trunk(key: Array, sizes: Sequence[int]) -> eqx.nn.Sequential:
    """A shared multilayer perceptron; `sizes` are the input's and then every layer's."""
    modules = []
    for k, (size, width) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        modules += [eqx.nn.Linear(size, width, key=k), eqx.nn.Lambda(jax.nn.relu)]
    return eqx.nn.Sequential(modules)


def make_heads(
    key: Array, sizes: Sequence[int], *, num_heads: int, initial_spread: float, lookup: bool
) -> tuple[StackedLinear | StackedTable, ...]:
    """The layers of K heads; their numbers start uniform within 1 / sqrt(in), except for the output biases.

    Args:
        key: of the initial weights.
        sizes: features, hidden..., actions.
        num_heads: K.
        initial_spread: bound of the initial output biases.
        lookup: whether features are one-hot vectors, given as their index.
    """
    shapes = list(pairwise(sizes))
    counts = [num_heads * width * (size + 1) for size, width in shapes]
    # One draw for all: every further random generator takes XLA a second to compile.
    draws = jnp.split(jax.random.uniform(key, (sum(counts),), minval=-1, maxval=1), np.cumsum(counts)[:-1])
    layers = []
    for (size, width), draw in zip(shapes, draws, strict=True):
        bound = 1.0 / math.sqrt(size)
        weight = bound * draw[num_heads * width :].reshape(num_heads, width, size)
        is_last = len(layers) == len(shapes) - 1
        bias = (initial_spread if is_last else bound) * draw[: num_heads * width].reshape(num_heads, width)
        if lookup and not layers:
            layers.append(StackedTable(jnp.transpose(weight, (2, 0, 1)), bias))
        else:
            layers.append(StackedLinear(weight, bias))
    return tuple(layers)
