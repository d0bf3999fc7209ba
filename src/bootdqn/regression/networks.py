"""Multilayer perceptrons, one or K at once, trained on all data by Adam.

A layer is read by NumPy as by JAX: training compiles once for data of one shape, and prediction never does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array


class Layer(NamedTuple):
    """An affine map, or K of them side by side."""

    weight: Any
    """[in, out] or [K, in, out]"""
    bias: Any
    """[1, out] or [K, 1, out]"""


Layers = tuple[Layer, ...]
"""Of a network with rectified linear units between them; the first may be one that K networks share."""


def make_layers(key: Array, sizes: Sequence[int]) -> Layers:
    """Initial layers, uniform within 1 / sqrt(in); `sizes` are the input's and then every layer's."""
    layers = []
    for k, (size, width) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        draw = jax.random.uniform(k, (size + 1, width), minval=-1, maxval=1) / np.sqrt(size)
        layers.append(Layer(draw[1:], draw[:1]))
    return tuple(layers)


@partial(jax.jit, static_argnames=("trunk", "sizes"))
def make_members(key: Array, member_keys: Array, trunk: tuple[int, ...], sizes: tuple[int, ...]) -> Layers:
    """Initial layers of K networks, or of K heads on a trunk.

    Args:
        key: of the trunk.
        member_keys: [K]; a member's initial weights depend on its own alone.
        trunk: sizes of the input and the shared layers.
        sizes: sizes of what every member reads, its hidden layers and its output.
    """
    return make_layers(key, trunk) + jax.vmap(lambda k: make_layers(k, sizes))(member_keys)


def forward(layers: Layers, x: Any, factors: Sequence[Any] | None = None) -> Any:
    """Outputs [N] or [K, N] of inputs [N, in]; `factors` multiply the units of every hidden layer."""
    *hidden, last = layers
    for index, layer in enumerate(hidden):
        x = (x @ layer.weight + layer.bias).clip(0)
        if factors is not None:
            x = x * factors[index]
    return (x @ last.weight + last.bias)[..., 0]


@jax.jit
def fit_members(
    layers: Layers, x: Array, y: Array, weights: Array, learning_rate: float, num_steps: int
) -> Layers:
    """Train K networks, each on its own weighting of the data.

    Args:
        layers: the initial ones.
        x: inputs [N, in].
        y: outputs [N].
        weights: of every point in every member's loss [K, N].
        learning_rate: at the start.
        num_steps: of the optimizer, on all data each.
    """

    def loss(layers: Layers, _: Array) -> Array:
        # A sum over members: what one learns does not depend on how many there are.
        return jnp.sum(weights * jnp.square(forward(layers, x) - y[None])) / len(y)

    return _minimise(loss, layers, learning_rate, num_steps)


@partial(jax.jit, static_argnames="rate")
def fit_dropout(
    key: Array, layers: Layers, x: Array, y: Array, rate: float, decay: float, learning_rate: float, num_steps: int
) -> Layers:
    """Train one network, whose hidden units are dropped anew for every point and step.

    Args:
        key: of what is dropped.
        layers: the initial ones.
        x: inputs [N, in].
        y: outputs [N].
        rate: probability to be dropped; those kept are scaled up.
        decay: weight of the squared weights in the loss.
        learning_rate: at the start.
        num_steps: of the optimizer, on all data each.
    """
    widths = [layer.weight.shape[-1] for layer in layers[:-1]]

    def loss(layers: Layers, step: Array) -> Array:
        kept = jax.random.bernoulli(jax.random.fold_in(key, step), 1 - rate, (len(y), sum(widths))) / (1 - rate)
        outputs = forward(layers, x, jnp.split(kept, np.cumsum(widths)[:-1], axis=1))
        return jnp.mean(jnp.square(outputs - y)) + decay * sum(jnp.sum(jnp.square(p.weight)) for p in layers)

    return _minimise(loss, layers, learning_rate, num_steps)


def _minimise(
    loss: Callable[[Layers, Array], Array], layers: Layers, learning_rate: float, num_steps: int
) -> Layers:
    """Adam, with a rate that falls to zero along a cosine; `loss` is given the layers and the step."""
    adam = optax.scale_by_adam()

    def step(index: Array, state: tuple[Layers, optax.OptState]) -> tuple[Layers, optax.OptState]:
        layers, moments = state
        direction, moments = adam.update(jax.grad(loss)(layers, index), moments)
        rate = 0.5 * learning_rate * (1 + jnp.cos(jnp.pi * index / num_steps))
        return jax.tree.map(lambda p, d: p - rate * d, layers, direction), moments

    return jax.lax.fori_loop(0, num_steps, step, (layers, adam.init(layers)))[0]
