"""The trunk of convolutions for pictures: by a kernel of our own, or by XLA as matrix products.

XLA's own convolutions are slow on a CPU. A convolution whose kernel is twice its stride equals one with a 2x2
kernel and stride 1 on blocks of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata

from bootdqn.core.kernels import trunk_gradients, trunk_layers

PICTURES = (4, 84, 84)
"""Shape of an observation that is a stack of pictures, the oldest first."""

NUM_FEATURES = 7 * 7 * 64
"""Number of features of a stack of pictures."""

_SHAPES = [(256, 32), (32,), (512, 64), (64,), (576, 64), (64,)]
"""Shapes of the weights and biases of DQN's convolutions, layer by layer."""


class Convolution(eqx.Module):
    """A convolution on patches, followed by a rectifier."""

    weight: Array
    """Weights [rows * columns * in, out], where rows and columns count blocks as large as the stride."""
    bias: Array
    """Biases [out]."""

    def __call__(self, patches: Array) -> Array:
        """Compute the pixels [N, pixels, out] of a batch from its patches [N, pixels, rows * columns * in]."""
        pixels = product(patches.reshape(-1, patches.shape[-1]), self.weight)
        return jax.nn.relu(pixels + self.bias[None]).reshape(*patches.shape[:2], -1)


class PictureTrunk(eqx.Module):
    """The convolutions of DQN: 32 of 8x8 with stride 4, 64 of 4x4 with stride 2, 64 of 3x3."""

    layers: tuple[Convolution, Convolution, Convolution]
    """The three convolutions in their order."""
    kernels: bool
    """Whether our kernel computes the features, which must have been compiled; otherwise XLA does."""

    def __call__(self, pictures: Array) -> Array:
        """Compute the features [..., 3136] of stacks of pictures [..., 4, 84, 84] of bytes."""
        if pictures.shape[-3:] != PICTURES or pictures.dtype != jnp.uint8:
            raise TypeError(f"pictures must be bytes [..., 4, 84, 84], got {pictures.dtype} {pictures.shape}")
        stacks = pictures.reshape(-1, *PICTURES)
        features = _by_kernel(stacks, *jax.tree.leaves(self.layers)) if self.kernels else self._by_xla(stacks)
        return features.reshape(*pictures.shape[:-3], -1)

    def _by_xla(self, pictures: Array) -> Array:
        """Compute the features [N, 3136] of a batch [N, 4, 84, 84] without a kernel."""
        first, second, third = self.layers
        patches = jax.lax.bitcast_convert_type(_patches_of_pictures(pictures), jnp.uint8).reshape(-1, 400, 256)
        x = first(patches.astype(jnp.float32) / 255)
        x = second(_patches_of_first(x))
        return third(_patches_of_second(x)).reshape(len(pictures), -1)


def make_picture_trunk(key: Array, *, kernels: bool = False) -> PictureTrunk:
    """Make a `PictureTrunk` whose numbers start uniform within 1 / sqrt(in), as those of heads do.

    Args:
        key: the random key of the initial numbers.
        kernels: whether our kernel computes the features; `kernels.why_not` must have said that it can.
    """
    layers = []
    for k, (num_in, num_out) in zip(jax.random.split(key, 3), _SHAPES[::2], strict=True):
        draw = jax.random.uniform(k, (num_in + 1, num_out), minval=-1, maxval=1) / math.sqrt(num_in)
        layers.append(Convolution(draw[1:], draw[0]))
    return PictureTrunk(tuple(layers), kernels)


@jax.custom_vjp
def _by_kernel(pictures: Array, *parameters: Array) -> Array:
    """Compute the features [N, 3136] of a batch [N, 4, 84, 84] by one call of the kernel, and so its gradient."""
    return trunk_layers(pictures, *parameters)[-1]


def _forward(pictures: Array, *parameters: Array):
    layers = trunk_layers(pictures, *parameters)
    return layers[-1], (pictures, parameters, layers)


def _backward(kept: tuple[Array, Sequence[Array], Sequence[Array]], gradient: Array):
    return None, *trunk_gradients(*kept, gradient)


_by_kernel.defvjp(_forward, _backward)


def _apart(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Keep `function` a call of its own in a compiled program.

    XLA's CPU compiler would merge it into what reads its result, and compute every number as often as it is read.
    """
    compiled = jax.jit(function)

    def call(x: Array) -> Array:
        if jax.default_backend() != "cpu":
            return function(x)
        with set_xla_metadata(inlineable="false"):
            return compiled(x)

    return call


@_apart
def _patches_of_pictures(pictures: Array) -> Array:
    """Cut pictures [N, 4, 84, 84] into patches of 8x8 with stride 4 [N, 400, 64]; a word is four neighbours."""
    words = jax.lax.bitcast_convert_type(pictures.reshape(-1, 4, 21, 4, 21, 4), jnp.uint32)
    blocks = words.transpose(0, 2, 4, 1, 3).reshape(-1, 21, 21, 16)
    return _side_by_side([blocks[:, i : i + 20, j : j + 20] for i in range(2) for j in range(2)])


@_apart
def _patches_of_first(x: Array) -> Array:
    """Cut the first layer's pixels [N, 400, 32] into patches of 4x4 with stride 2 [N, 81, 512]."""
    # Neighbours move in pairs.
    pairs = x.reshape(-1, 10, 2, 10, 64)
    rows = pairs[:, :, 0], pairs[:, :, 1]
    return _side_by_side([row[:, i : i + 9, j : j + 9] for i in range(2) for j in range(2) for row in rows])


@_apart
def _patches_of_second(x: Array) -> Array:
    """Cut the second layer's pixels [N, 81, 64] into patches of 3x3 [N, 49, 576]."""
    pixels = x.reshape(-1, 9, 9, 64)
    return _side_by_side([pixels[:, i : i + 7, j : j + 7] for i in range(3) for j in range(3)])


def _side_by_side(parts: Sequence[Array]) -> Array:
    """Join the parts [N, rows, columns, in / parts] of patches into patches [N, rows * columns, in]."""
    patches = jnp.concatenate(parts, axis=-1)
    return patches.reshape(len(patches), -1, patches.shape[-1])


@jax.custom_vjp
def product(x: Array, weight: Array) -> Array:
    """Multiply `x` [N, in] by `weight` [in, out], such that the weight's gradient is fast on a CPU, too."""
    return x @ weight


def _product_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = kept
    # Without barriers XLA undoes the transpositions, and then multiplies in slow loops.
    transposed = jax.lax.optimization_barrier(gradient.T)
    return gradient @ weight.T, jax.lax.optimization_barrier(transposed @ x).T


product.defvjp(lambda x, weight: (x @ weight, (x, weight)), _product_backward)
