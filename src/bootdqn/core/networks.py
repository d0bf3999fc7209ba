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

from bootdqn.core.conv_trunk import NUM_FEATURES, PictureTrunk, make_picture_trunk
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

    def of_batch(self, index: Array) -> Array:
        """Compute outputs [N, K, out] of a batch of indices [N]."""
        return self._row(index) + self.bias[None]

    def one(self, head: Array, index: Array) -> Array:
        """Compute the output [out] of one head for one index."""
        return self._row(index)[head] + self.bias[head]

    def only(self, heads: Array) -> StackedTable:
        """Keep the maps of some heads alone."""
        return StackedTable(self.weight[:, heads], self.bias[heads])

    def _row(self, index: Array) -> Array:
        return jnp.take(self.weight, index, axis=0, mode="fill", fill_value=0)


class InputScale(eqx.Module):
    """A fixed affine map of the encoded observation, which brings its entries to comparable ranges."""

    shift: Array
    """What is added to every entry [size]."""
    scale: Array
    """What that is then multiplied by [size]."""

    def __call__(self, x: Array) -> Array:
        """Scale one encoded observation [size]."""
        return (x + self.shift) * self.scale


def fitted_scale(inputs: Array, low: Array, high: Array) -> InputScale:
    """Choose the scale that maps the range of every input to [-1, 1].

    The range is that of its bounds, or what was observed where it has none. An entry without bounds that never
    changed is scaled as the widest of those without, since nothing is known of it.

    Args:
        inputs: encoded observations [N, size].
        low: the least value of every entry [size]; -inf where there is none.
        high: the largest value of every entry [size]; inf where there is none.
    """
    bounded = jnp.isfinite(low) & jnp.isfinite(high) & (high > low)
    low, high = jnp.where(bounded, low, inputs.min(axis=0)), jnp.where(bounded, high, inputs.max(axis=0))
    half = (high - low) / 2
    varies = half > 1e-6 * (1 + jnp.abs(low))
    widest = jnp.max(half, initial=0.0, where=varies & ~bounded)
    half = jnp.where(varies, half, jnp.where(widest > 0, widest, 1.0))
    return InputScale(-(low + high) / 2, 1 / half)


class PriorTable(eqx.Module):
    """A fixed random function per head of an observation that is the index of a state; 0 beyond the last."""

    values: Array
    """The function's values [S, K, A]."""

    def __call__(self, obs: Array, inputs: InputScale | None = None) -> Array:
        """Compute the values [K, A] of one state, whose index has no scale."""
        del inputs
        return self.values.at[obs].get(mode="fill", fill_value=0)

    def of_head(self, head: Array, obs: Array, inputs: InputScale | None = None) -> Array:
        """Compute the values [A] of one state under one head."""
        del inputs
        return self.values.at[obs, head].get(mode="fill", fill_value=0)

    def only(self, heads: Array) -> PriorTable:
        """Keep the functions of some heads alone."""
        return PriorTable(self.values[:, heads])


class PriorNetwork(eqx.Module):
    """A fixed random function per head of any other observation."""

    encoding: Encoding | None = eqx.field(static=True)
    """How an observation becomes the trunk's input; None where it is an index to look up."""
    trunk: Callable[[Array], Array]
    """(encoded observation) -> features [F] that heads share; the identity where heads have hidden layers."""
    layers: tuple[StackedLinear | StackedTable, ...]
    """The layers of all heads."""
    shift: Array
    """What is added to the outputs of heads [K, A]."""
    scale: Array
    """What that is then multiplied by [K, A]."""

    def __call__(self, obs: Array, inputs: InputScale | None = None) -> Array:
        """Compute the values [K, A] of one observation, by the scale of the network's inputs."""
        x = self._features(obs, inputs)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return (self.layers[-1](x) + self.shift) * self.scale

    def of_head(self, head: Array, obs: Array, inputs: InputScale | None = None) -> Array:
        """Compute the values [A] of one observation under one head."""
        x = self._features(obs, inputs)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer.one(head, x))
        return (self.layers[-1].one(head, x) + self.shift[head]) * self.scale[head]

    def only(self, heads: Array) -> PriorNetwork:
        """Keep the functions of some heads alone."""
        layers = tuple(layer.only(heads) for layer in self.layers)
        return replace(self, layers=layers, shift=self.shift[heads], scale=self.scale[heads])

    def _features(self, obs: Array, inputs: InputScale | None) -> Array:
        return obs if self.encoding is None else self.trunk(_encoded(self.encoding, inputs, obs))


def _encoded(encoding: Encoding, inputs: InputScale | None, obs: Array) -> Array:
    """Encode one observation as the input of a trunk."""
    return encoding(obs) if inputs is None else inputs(encoding(obs))


def normalised(
    prior: PriorNetwork, observations: Array, scales: Sequence[float], inputs: InputScale | None = None
) -> PriorNetwork:
    """Make a head's function of every action have mean 0 and a given standard deviation over observations.

    A mean would be a preference for an action in all states, which makes policies that always do the same.

    Args:
        prior: the random functions.
        observations: observations [N, ...].
        scales: the standard deviation of every head.
        inputs: the scale of the network's inputs.
    """
    raw = replace(prior, shift=jnp.zeros_like(prior.shift), scale=jnp.ones_like(prior.scale))
    values = jax.vmap(lambda obs: raw(obs, inputs))(observations)
    spread = values.std(axis=0)
    # A function that is the same for all observations, but for rounding, says nothing of them.
    useful = spread > 1e-6 * jnp.abs(values).max()
    wanted = jnp.asarray(scales, jnp.float32)[:, None]
    return replace(prior, shift=-values.mean(axis=0), scale=jnp.where(useful, wanted / spread, 0.0))


NOT_FOLLOWED = 1e30
"""Stands for the returns of a head that was not followed yet, so that it is preferred to all that were."""
_NEWEST = 0.2
"""Weight of the newest episode in the recent returns of a head."""


class QNetwork(eqx.Module):
    """K value functions: an encoding, a trunk that heads share, the heads, and fixed functions added to them."""

    encoding: Encoding = eqx.field(static=True)
    """How an observation becomes the trunk's input."""
    trunk: Callable[[Array], Array]
    """Any Equinox module (encoded observation) -> features [F], or [K, F]; the identity for separate networks."""
    layers: tuple[StackedLinear | StackedTable, ...]
    """The layers of all heads; where they are dueling, of both streams of the first head, of the second, ..."""
    trunk_gradient_scale: float = eqx.field(static=True)
    """Factor of the gradient that flows from the heads into the trunk."""
    dueling: bool = eqx.field(static=True, default=False)
    """Whether every head has two streams: the first for the value of an observation, the second for actions."""
    prior: PriorTable | PriorNetwork | None = None
    """The fixed function of every head that is added to its values; None for none."""
    inputs: InputScale | None = None
    """The fixed scale of what the trunk reads; None for none."""
    returns: Array | None = None
    """What episodes of every head returned lately [K], as `NOT_FOLLOWED` says for none; None where nobody asks."""
    best_rest: Array | None = None
    """What was at best collected from a step to the end of its episode, at least 0; None where nobody asks."""

    def __call__(self, obs: Array) -> Array:
        """Compute values of all actions under all heads [K, A] for one observation."""
        return self.with_prior(self.values(self.features(obs)), obs)

    def with_prior(self, values: Array, obs: Array) -> Array:
        """Add the prior's values of one observation to what the heads have learned of it [K, A]."""
        return values if self.prior is None else values + self.prior(obs, self.inputs)

    def with_priors(self, values: Array, obs: Array) -> Array:
        """Add the prior's values of a batch of observations to what the heads have learned of it [N, K, A]."""
        prior, inputs = self.prior, self.inputs
        return values if prior is None else values + jax.vmap(lambda one: prior(one, inputs))(obs)

    def features(self, obs: Array) -> Array:
        """Compute what the heads read: the trunk's features [F], or the observed index where they look it up."""
        if isinstance(self.layers[0], StackedTable):
            return obs
        return scale_gradient(self.trunk(_encoded(self.encoding, self.inputs, obs)), self.trunk_gradient_scale)

    def features_of_batch(self, obs: Array) -> Array:
        """Compute what the heads read of a batch of observations [N, ...]: the trunk's features [N, F]."""
        if isinstance(self.trunk, PictureTrunk):
            return scale_gradient(self.trunk(obs), self.trunk_gradient_scale)
        return jax.vmap(self.features)(obs)

    def values(self, features: Array) -> Array:
        """Compute values [K, A] from what the heads read."""
        if self.dueling and features.ndim == 2:  # others for every head, and the same for its streams
            features = jnp.repeat(features, 2, axis=0)
        return self.values_above(self.layers[0](features))

    def values_above(self, y: Array) -> Array:
        """Compute values [K, A] from what the first layer of heads returns [K, out]."""
        for layer in self.layers[1:]:
            y = layer(jax.nn.relu(y))
        return dueling_values(y[::2], y[1::2]) if self.dueling else y

    def head(self, index: Array, obs: Array) -> Array:
        """Compute values of all actions [A] under one head, without the other heads."""
        features = self.features(obs)
        features = features[index] if features.ndim == 2 else features

        def stream(index: Array) -> Array:
            x = features
            for layer in self.layers[:-1]:
                x = jax.nn.relu(layer.one(index, x))
            return self.layers[-1].one(index, x)

        learned = dueling_values(stream(2 * index), stream(2 * index + 1)) if self.dueling else stream(index)
        return learned if self.prior is None else learned + self.prior.of_head(index, obs, self.inputs)

    def only(self, heads: Array) -> QNetwork:
        """Keep some heads alone; works on parameters without the rest of the network, too."""
        prior = None if self.prior is None else self.prior.only(heads)
        stacked = jnp.stack([2 * heads, 2 * heads + 1], axis=1).ravel() if self.dueling else heads
        return replace(self, layers=tuple(layer.only(stacked) for layer in self.layers), prior=prior)


def dueling_values(of_state: Array, of_actions: Array) -> Array:
    """Compute values [..., A] from what two streams return [..., A]; the first has one number that counts."""
    return of_state[..., :1] + of_actions - of_actions.mean(axis=-1, keepdims=True)


def trained_part(params: QNetwork) -> QNetwork:
    """Leave out of parameters what no update changes."""
    return replace(params, prior=None, inputs=None, returns=None, best_rest=None)


def with_fixed_part(trained: QNetwork, params: QNetwork) -> QNetwork:
    """Add to trained parameters what no update changes, from other parameters that have it."""
    fixed = {"prior": params.prior, "inputs": params.inputs}
    return replace(trained, **fixed, returns=params.returns, best_rest=params.best_rest)


def with_return(params: QNetwork, acted: Array, episode_return: Array, best_rest: Array) -> QNetwork:
    """Note an episode: its return, for the heads that acted in it, and the largest discounted one from a step on.

    Args:
        params: what is changed.
        acted: which heads acted [K].
        episode_return: the return [].
        best_rest: the largest discounted return from a step on [].
    """
    returns, best = params.returns, params.best_rest
    if returns is not None:
        recent = returns + _NEWEST * (episode_return - returns)
        recent = jnp.where(returns == NOT_FOLLOWED, episode_return, recent)
        returns = jnp.where(acted, recent, returns)
    if best is not None:
        best = jnp.maximum(best, best_rest)
    return replace(params, returns=returns, best_rest=best)


def make_mlp_trunk(key: Array, sizes: Sequence[int]) -> eqx.nn.Sequential:
    """Make a shared multilayer perceptron; `sizes` are the input's and then every layer's."""
    modules = []
    for k, (size, width) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        modules += [eqx.nn.Linear(size, width, key=k), eqx.nn.Lambda(jax.nn.relu)]
    return eqx.nn.Sequential(modules)


def make_heads(
    key: Array,
    sizes: Sequence[int],
    *,
    num_heads: int,
    initial_spread: float,
    lookup: bool,
    unit_fan_in: bool = False,
) -> tuple[StackedLinear | StackedTable, ...]:
    """Make the layers of K heads; numbers start uniform within 1 / sqrt(in), except for the output biases.

    Args:
        key: the random key of the initial numbers.
        sizes: the numbers of features, of outputs of every hidden layer, and of actions.
        num_heads: the number of heads K.
        initial_spread: bound of the initial output biases.
        lookup: whether features are one-hot vectors, given as their index.
        unit_fan_in: whether such a vector counts as one input.
    """
    shapes = list(pairwise(sizes))
    counts = [num_heads * width * (size + 1) for size, width in shapes]
    # One draw for all: every further random generator takes XLA a second to compile.
    draws = jnp.split(jax.random.uniform(key, (sum(counts),), minval=-1, maxval=1), np.cumsum(counts)[:-1])
    layers = []
    for (size, width), draw in zip(shapes, draws, strict=True):
        bound = 1.0 if unit_fan_in and lookup and not layers else 1.0 / math.sqrt(size)
        weight = bound * draw[num_heads * width :].reshape(num_heads, width, size)
        is_last = len(layers) == len(shapes) - 1
        bias = (initial_spread if is_last else bound) * draw[: num_heads * width].reshape(num_heads, width)
        if lookup and not layers:
            layers.append(StackedTable(jnp.transpose(weight, (2, 0, 1)), bias))
        else:
            layers.append(StackedLinear(weight, bias))
    return tuple(layers)


_PRIOR_HIDDEN = 50
"""Hidden units of a prior, per head."""


def make_prior(
    key: Array, encoding: Encoding, num_actions: int, *, scales: Sequence[float]
) -> PriorTable | PriorNetwork:
    """Make a random function per head.

    Functions of a state have mean 0 and the given standard deviations over all states. Functions of other
    observations get them by `normalised`, once there are observations.

    Args:
        key: the random key.
        encoding: how an observation becomes the network's input.
        num_actions: the number of actions A.
        scales: the standard deviation over observations of every head's function.
    """
    num_heads = len(scales)
    trunk_key, head_key = jax.random.split(key)
    trunk: Callable[[Array], Array] = eqx.nn.Identity()
    sizes = (encoding.size, _PRIOR_HIDDEN, num_actions)
    if encoding.kind == "pictures":  # whose convolutions take the place of the hidden layer
        trunk = make_picture_trunk(trunk_key)
        sizes = (NUM_FEATURES, num_actions)
    lookup = encoding.kind == "one_hot"
    layers = make_heads(head_key, sizes, num_heads=num_heads, initial_spread=0.0, lookup=lookup, unit_fan_in=True)
    shape = num_heads, num_actions
    raw = jnp.broadcast_to(jnp.asarray(scales, jnp.float32)[:, None], shape)
    prior = PriorNetwork(None if lookup else encoding, trunk, layers, jnp.zeros(shape), raw)
    if not encoding.num_states:
        return prior
    states = jnp.arange(encoding.num_states)
    return PriorTable(jax.vmap(normalised(prior, states, scales))(states))
