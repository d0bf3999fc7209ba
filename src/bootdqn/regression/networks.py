"""Multilayer perceptrons, one or K at once, trained on all data by Adam.

Layers can hold arrays of NumPy or of JAX: training compiles once for data of one shape, and prediction never does.
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
    """The weights [in, out] or [K, in, out]."""
    bias: Any
    """The biases [1, out] or [K, 1, out]."""


Layers = tuple[Layer, ...]
"""The layers of a network with rectified linear units between them; K networks may share the first ones."""


def make_layers(key: Array, sizes: Sequence[int]) -> Layers:
    """Make initial layers, uniform within 1 / sqrt(in), from the sizes of the input and of every layer."""
    layers = []
    for k, (size, width) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        draw = jax.random.uniform(k, (size + 1, width), minval=-1, maxval=1) / np.sqrt(size)
        layers.append(Layer(draw[1:], draw[:1]))
    return tuple(layers)


@partial(jax.jit, static_argnames=("trunk", "sizes"))
def make_members(key: Array, member_keys: Array, trunk: tuple[int, ...], sizes: tuple[int, ...]) -> Layers:
    """Make the initial layers of K networks, or of K heads on a trunk.

    Args:
        key: the random key of the trunk.
        member_keys: the random keys of the members [K]; a member's initial weights depend on its own key alone.
        trunk: the sizes of the input and of the shared layers.
        sizes: the sizes of the input of a member, of its hidden layers and of its output.
    """
    return make_layers(key, trunk) + jax.vmap(lambda k: make_layers(k, sizes))(member_keys)


def forward(layers: Layers, x: Any, factors: Sequence[Any] | None = None) -> Any:
    """Return outputs [N] or [K, N] for inputs [N, in]; `factors` multiply the units of every hidden layer."""
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
        layers: the initial layers.
        x: inputs [N, in].
        y: outputs [N].
        weights: the weights of every point in the loss of every member [K, N].
        learning_rate: the learning rate at the start.
        num_steps: the number of steps of the optimizer, each on all data.
    """

    def loss(layers: Layers, _: Array) -> Array:
        # The loss is a sum over members, so that what one learns does not depend on how many there are.
        return jnp.sum(weights * jnp.square(forward(layers, x) - y[None])) / len(y)

    return _minimise(loss, layers, learning_rate, num_steps)


@partial(jax.jit, static_argnames="rate")
def fit_dropout(
    key: Array, layers: Layers, x: Array, y: Array, rate: float, decay: float, learning_rate: float, num_steps: int
) -> Layers:
    """Train one network whose hidden units are dropped anew for every point and step.

    Args:
        key: the random key of dropout.
        layers: the initial layers.
        x: inputs [N, in].
        y: outputs [N].
        rate: the probability that a unit is dropped; units that are kept are scaled up.
        decay: the factor of the squared weights in the loss.
        learning_rate: the learning rate at the start.
        num_steps: the number of steps of the optimizer, each on all data.
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
    """Minimise a loss of the layers and the step by Adam, with a rate that falls to zero along a cosine."""
    adam = optax.scale_by_adam()

    def step(index: Array, state: tuple[Layers, optax.OptState]) -> tuple[Layers, optax.OptState]:
        layers, moments = state
        direction, moments = adam.update(jax.grad(loss)(layers, index), moments)
        rate = 0.5 * learning_rate * (1 + jnp.cos(jnp.pi * index / num_steps))
        return jax.tree.map(lambda p, d: p - rate * d, layers, direction), moments

    return jax.lax.fori_loop(0, num_steps, step, (layers, adam.init(layers)))[0]
