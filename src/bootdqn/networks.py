"""Value networks with K heads: separate multilayer perceptrons, or heads on a shared trunk.

Head weights are stacked [K, out, in], so that K heads on shared features are one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bootdqn.types import Encoding

PICTURES = (4, 84, 84)
"""Shape of an observation that is a stack of pictures, the oldest first."""


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

    def one(self, head: Array, x: Array) -> Array:
        """Output [out] of one head for its input [in]."""
        return self.weight[head] @ x + self.bias[head]


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
        x = self._features(obs)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)

    def head(self, index: Array, obs: Array) -> Array:
        """Values of all actions [A] under one head, without computing the others."""
        x = self._features(obs)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer.one(index, x))
        return self.layers[-1].one(index, x)

    def _features(self, obs: Array) -> Array:
        """What the heads read: the trunk's features [F], or the observed index where they look it up."""
        if isinstance(self.layers[0], StackedTable):
            return obs
        return scale_gradient(self.trunk(self.encoding(obs)), self.trunk_gradient_scale)


def make_mlp_trunk(key: Array, sizes: Sequence[int]) -> eqx.nn.Sequential:
    """A shared multilayer perceptron; `sizes` are the input's and then every layer's."""
    modules = []
    for k, (size, width) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        modules += [eqx.nn.Linear(size, width, key=k), eqx.nn.Lambda(jax.nn.relu)]
    return eqx.nn.Sequential(modules)


class Convolution(eqx.Module):
    """A convolution with stride 1 and a square kernel, as one matrix product: XLA's own is slower on a CPU."""

    weight: Array
    """[rows * columns * in, out]"""
    bias: Array
    """[out]"""
    size: int = eqx.field(static=True)
    """Rows and columns of the kernel."""
    patches: bool = eqx.field(static=True)
    """Copy the patches together and multiply once, or multiply every pixel with the whole kernel and add up what
    belongs together; the same numbers, and which is faster depends on the shapes."""

    def __call__(self, x: Array) -> Array:
        """From pixels [rows, columns, in] to pixels [rows - size + 1, columns - size + 1, out]."""
        rows, columns = (extent - self.size + 1 for extent in x.shape[:2])
        offsets = [(i, j) for i in range(self.size) for j in range(self.size)]
        if self.patches:
            parts = [x[i : i + rows, j : j + columns] for i, j in offsets]
            return jnp.concatenate(parts, axis=-1) @ self.weight + self.bias[None, None]
        num_in, num_out = x.shape[-1], self.bias.shape[0]
        kernels = self.weight.reshape(len(offsets), num_in, num_out).transpose(1, 0, 2).reshape(num_in, -1)
        products = jax.lax.split(x @ kernels, [num_out] * len(offsets), axis=2)
        parts = [y[i : i + rows, j : j + columns] for (i, j), y in zip(offsets, products, strict=True)]
        return sum(parts[1:], parts[0]) + self.bias[None, None]


class PictureTrunk(eqx.Module):
    """The convolutions of DQN: 32 of 8x8 with stride 4, 64 of 4x4 with stride 2, 64 of 3x3.

    A convolution whose kernel is twice its stride is one with a 2x2 kernel and stride 1 on blocks of pixels.
    """

    layers: tuple[Convolution, Convolution, Convolution]

    def __call__(self, pictures: Array) -> Array:
        """Features [3136] of a stack of pictures [4, 84, 84] of bytes."""
        # Four neighbours in a row move as one word: rows of blocks, columns of blocks, picture, row, column.
        words = jax.lax.bitcast_convert_type(pictures.reshape(4, 21, 4, 21, 4), jnp.uint32).transpose(1, 3, 0, 2)
        blocks = jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(21, 21, 64)
        x = jax.nn.relu(self.layers[0](blocks.astype(jnp.float32) / 255))
        x = x.reshape(10, 2, 10, 2, 32).transpose(0, 2, 1, 3, 4).reshape(10, 10, 128)
        x = jax.nn.relu(self.layers[1](x))
        return jax.nn.relu(self.layers[2](x)).reshape(-1)


def make_picture_trunk(key: Array) -> PictureTrunk:
    """A `PictureTrunk` whose numbers start uniform within 1 / sqrt(in), as those of heads do."""
    shapes = ((256, 32), (512, 64), (576, 64))
    layers = []
    for k, (num_in, num_out), size, patches in zip(
        jax.random.split(key, 3), shapes, (2, 2, 3), (False, False, True), strict=True
    ):
        draw = jax.random.uniform(k, (num_in + 1, num_out), minval=-1, maxval=1) / math.sqrt(num_in)
        layers.append(Convolution(draw[1:], draw[0], size, patches))
    return PictureTrunk(tuple(layers))


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
