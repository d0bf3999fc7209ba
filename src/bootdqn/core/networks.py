"""Value networks with K heads: separate multilayer perceptrons, or heads on a shared trunk.

Head weights are stacked [K, out, in], so that K heads on shared features are one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bootdqn.core.conv_trunk import PictureTrunk
from bootdqn.types import Encoding


def scale_gradient(x: Array, scale: float) -> Array:
    """Return `x` to the bit, but multiply the gradient that flows back through it by `scale`."""
    scaled = scale * x
    return jax.lax.stop_gradient(x) + (scaled - jax.lax.stop_gradient(scaled))


class StackedLinear(eqx.Module):
    """K affine maps side by side."""

    weight: Array
    """Weights [K, out, in]."""
    bias: Array
    """Biases [K, out]."""

    def __call__(self, x: Array) -> Array:
        """Compute outputs [K, out] of one input that heads share [in], or of one input per head [K, in]."""
        if x.ndim == 1:
            return jnp.tensordot(self.weight, x, axes=1) + self.bias
        return jnp.einsum("koi,ki->ko", self.weight, x) + self.bias

    def of_batch(self, x: Array) -> Array:
        """Compute outputs [N, K, out] of a batch of inputs that heads share [N, in], as one product."""
        # With the weights on the left, which XLA otherwise transposes.
        return jnp.moveaxis(jnp.tensordot(self.weight, x, axes=(2, 1)), 2, 0) + self.bias[None]

    def one(self, head: Array, x: Array) -> Array:
        """Compute the output [out] of one head for its input [in]."""
        return self.weight[head] @ x + self.bias[head]

    def only(self, heads: Array) -> StackedLinear:
        """Keep the maps of some heads alone."""
        return StackedLinear(self.weight[heads], self.bias[heads])


class StackedTable(eqx.Module):
    """A `StackedLinear` for one-hot inputs, given as their index: a lookup in place of a matrix product.

    An index beyond the table stands for an input of zeros: it reads zeros and changes no row.
    """

    weight: Array
    """Weights [in, K, out], so that what one index reads is contiguous."""
    bias: Array
    """Biases [K, out]."""

    def __call__(self, index: Array) -> Array:
        """Compute outputs [K, out] of one index."""
        return self._row(index) + self.bias

    def one(self, head: Array, index: Array) -> Array:
        """Compute the output [out] of one head for one index."""
        return self._row(index)[head] + self.bias[head]

    def only(self, heads: Array) -> StackedTable:
        """Keep the maps of some heads alone."""
        return StackedTable(self.weight[:, heads], self.bias[heads])

    def _row(self, index: Array) -> Array:
        return jnp.take(self.weight, index, axis=0, mode="fill", fill_value=0)


class QNetwork(eqx.Module):
    """K value functions: an encoding, a trunk that heads share, and the heads."""

    encoding: Encoding = eqx.field(static=True)
    """How an observation becomes the trunk's input."""
    trunk: Callable[[Array], Array]
    """Any Equinox module (encoded observation) -> features [F], or [K, F]; the identity for separate networks."""
    layers: tuple[StackedLinear | StackedTable, ...]
    """The layers of all heads."""
    trunk_gradient_scale: float = eqx.field(static=True)
    """Factor of the gradient that flows from the heads into the trunk."""

    def __call__(self, obs: Array) -> Array:
        """Compute values of all actions under all heads [K, A] for one observation."""
        return self.values(self.features(obs))

    def features(self, obs: Array) -> Array:
        """Compute what the heads read: the trunk's features [F], or the observed index where they look it up."""
        if isinstance(self.layers[0], StackedTable):
            return obs
        return scale_gradient(self.trunk(self.encoding(obs)), self.trunk_gradient_scale)

    def features_of_batch(self, obs: Array) -> Array:
        """Compute what the heads read of a batch of observations [N, ...]: the trunk's features [N, F]."""
        if isinstance(self.trunk, PictureTrunk):
            return scale_gradient(self.trunk(obs), self.trunk_gradient_scale)
        return jax.vmap(self.features)(obs)

    def values(self, features: Array) -> Array:
        """Compute values [K, A] from what the heads read."""
        return self.values_above(self.layers[0](features))

    def values_above(self, y: Array) -> Array:
        """Compute values [K, A] from what the first layer of heads returns [K, out]."""
        for layer in self.layers[1:]:
            y = layer(jax.nn.relu(y))
        return y

    def head(self, index: Array, obs: Array) -> Array:
        """Compute values of all actions [A] under one head, without the other heads."""
        x = self.features(obs)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer.one(index, x))
        return self.layers[-1].one(index, x)

    def only(self, heads: Array) -> QNetwork:
        """Keep some heads alone; works on parameters without the rest of the network, too."""
        return replace(self, layers=tuple(layer.only(heads) for layer in self.layers))


def make_mlp_trunk(key: Array, sizes: Sequence[int]) -> eqx.nn.Sequential:
    """Make a shared multilayer perceptron; `sizes` are the input's and then every layer's."""
    modules = []
    for k, (size, width) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        modules += [eqx.nn.Linear(size, width, key=k), eqx.nn.Lambda(jax.nn.relu)]
    return eqx.nn.Sequential(modules)


def make_heads(
    key: Array, sizes: Sequence[int], *, num_heads: int, initial_spread: float, lookup: bool
) -> tuple[StackedLinear | StackedTable, ...]:
    """Make the layers of K heads; numbers start uniform within 1 / sqrt(in), except for the output biases.

    Args:
        key: the random key of the initial numbers.
        sizes: the numbers of features, of outputs of every hidden layer, and of actions.
        num_heads: the number of heads K.
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
