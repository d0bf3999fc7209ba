"""Value networks with K heads: separate multilayer perceptrons, or heads on a shared trunk.

Head weights are stacked [K, out, in], so that K heads on shared features are one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


def scale_gradient(x: Array, scale: float) -> Array:
    """`x` itself, but the gradient that flows back through it is multiplied by `scale`."""
    return scale * x + jax.lax.stop_gradient((1.0 - scale) * x)


class StackedLinear(eqx.Module):
    """K affine maps side by side."""

    weight: Array
    """[K, out, in]"""
    bias: Array
    """[K, out]"""

    def __init__(self, key: Array, num_heads: int, in_size: int, out_size: int):
        weight_key, bias_key = jax.random.split(key)
        bound = 1.0 / math.sqrt(in_size)
        self.weight = jax.random.uniform(weight_key, (num_heads, out_size, in_size), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias_key, (num_heads, out_size), minval=-bound, maxval=bound)

    def __call__(self, x: Array) -> Array:
        """Outputs [K, out] of an input that heads share [in] or that each has its own of [K, in]."""
        if x.ndim == 1:
            return jnp.tensordot(self.weight, x, axes=1) + self.bias
        return jnp.einsum("koi,ki->ko", self.weight, x) + self.bias

    def one(self, head: Array, x: Array) -> Array:
        """Output [out] of one head for its input [in]."""
        return self.weight[head] @ x + self.bias[head]


class QNetwork(eqx.Module):
    """K value functions: a trunk that heads share, and the heads.

    For separate networks the trunk holds no parameters: it is the observation's encoding.
    """

    trunk: Callable[[Array], Array]
    """One observation -> features [F]: any Equinox module, or an encoding."""
    layers: tuple[StackedLinear, ...]
    trunk_gradient_scale: float = eqx.field(static=True)

    def __call__(self, obs: Array) -> Array:
        """Values of all actions under all heads [K, A] of one observation."""
        x = scale_gradient(self.trunk(obs), self.trunk_gradient_scale)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)

    def head(self, index: Array, obs: Array) -> Array:
        """Values of all actions [A] under one head, without computing the others."""
        x = self.trunk(obs)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer.one(index, x))
        return self.layers[-1].one(index, x)


class MLPTrunk(eqx.Module):
    """A shared multilayer perceptron on encoded observations."""

    encoding: Callable[[Array], Array]
    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, key: Array, encoding: Callable[[Array], Array], sizes: Sequence[int]):
        """`sizes` are the input size and then the width of every layer."""
        keys = jax.random.split(key, len(sizes) - 1)
        self.encoding = encoding
        pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
        self.layers = tuple(eqx.nn.Linear(size, width, key=k) for size, width, k in pairs)

    def __call__(self, obs: Array) -> Array:
        """Features [sizes[-1]] of one observation."""
        x = self.encoding(obs)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


def make_q_network(
    key: Array,
    trunk: Callable[[Array], Array],
    sizes: Sequence[int],
    *,
    num_heads: int,
    trunk_gradient_scale: float = 1.0,
) -> QNetwork:
    """K heads of the given layer sizes (features, hidden..., actions) on `trunk`."""
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
    layers = tuple(StackedLinear(k, num_heads, size, width) for size, width, k in pairs)
    return QNetwork(trunk, layers, trunk_gradient_scale)
