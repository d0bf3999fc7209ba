"""From a batch to the next parameters: the gradient of all heads' losses, and the optimizer's step.

Nearly all numbers of a network for pictures are the weights of the heads' first layer. Their gradient is a sum of
outer products over the batch, and where there are kernels it stays in that form: nobody writes it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from bootdqn.kernels import OuterProducts, centred_rmsprop, why_not
from bootdqn.losses import error_loss, pick, td_target
from bootdqn.networks import QNetwork
from bootdqn.types import Params, Transition, UpdateMetrics

if TYPE_CHECKING:
    from bootdqn.agent import AgentConfig

_DECAY = 0.95
"""Of the running means of centred RMSProp."""


def make_gradient(
    config: AgentConfig, static: QNetwork
) -> Callable[[Params, Params, Transition], tuple[Params, UpdateMetrics]]:
    """(params, target params, batch) -> the gradient of the heads' losses, and what they were.

    Args:
        config: the agent's.
        static: the part of its network that is not trained.
    """

    def transition_loss(params: Params, target_params: Params, transition: Transition):
        online = eqx.combine(params, static)
        features = online.features(transition.obs)
        if config.double_q:
            q, next_q = online.values_of_both(features, online.features(transition.next_obs))
        else:
            q, next_q = online.values(features), jnp.zeros(())
        predicted = pick(q, transition.action)
        next_target_q = eqx.combine(target_params, static)(transition.next_obs)
        reward = jnp.clip(transition.reward, -1, 1) if config.clip_rewards else transition.reward
        target = td_target(reward, transition.discount, next_q, next_target_q, double_q=config.double_q)
        return transition.mask * error_loss(target - predicted, config.loss), predicted, features

    def total(losses: Array, predicted: Array) -> tuple[Array, UpdateMetrics]:
        # A mean over the batch and a sum over heads: no head's gradient depends on how many there are.
        per_head = losses.mean(axis=0)
        return per_head.sum(), UpdateMetrics(per_head.mean(), predicted.mean(), predicted.std(axis=1).mean())

    def whole(params: Params, target_params: Params, batch: Transition) -> tuple[Params, UpdateMetrics]:
        def loss(params: Params) -> tuple[Array, UpdateMetrics]:
            losses, predicted, _ = jax.vmap(transition_loss, in_axes=(None, None, 0))(params, target_params, batch)
            return total(losses, predicted)

        return jax.grad(loss, has_aux=True)(params)

    def in_factors(params: Params, target_params: Params, batch: Transition) -> tuple[Params, UpdateMetrics]:
        weight, bias = _first_layer(params)

        def loss(rest: Params, biases: Array) -> tuple[Array, tuple[UpdateMetrics, Array]]:
            def of_one(bias: Array, transition: Transition):
                return transition_loss(_with_first_layer(rest, weight, bias), target_params, transition)

            losses, predicted, features = jax.vmap(of_one)(biases, batch)
            value, metrics = total(losses, predicted)
            return value, (metrics, features)

        # A bias for every transition: its gradient is that of what the layer returns.
        biases = jnp.broadcast_to(bias[None], (len(batch.action), *bias.shape))
        rest = _with_first_layer(params, None, None)
        (gradient, left), (metrics, features) = jax.grad(loss, argnums=(0, 1), has_aux=True)(rest, biases)
        if features.ndim > 2:  # a trunk of the user's own may have others for every head
            return whole(params, target_params, batch)
        return _with_first_layer(gradient, OuterProducts(left, features), left.sum(axis=0)), metrics

    def gradient(params: Params, target_params: Params, batch: Transition) -> tuple[Params, UpdateMetrics]:
        is_large = config.optimizer == "rmsprop" and static.encoding.kind == "pictures"
        if not is_large or params.layers[0].weight.dtype != jnp.float32 or why_not() is not None:
            return whole(params, target_params, batch)
        return in_factors(params, target_params, batch)

    return gradient


def make_optimizer(config: AgentConfig) -> optax.GradientTransformation:
    """Adam, or the original DQN's centred RMSProp.

    The original sums gradients over the batch and adds 0.01 under the root; ours are means, so the constant is
    divided by the squared batch size and the step stays the same.
    """
    if config.optimizer == "adam":
        return optax.adam(config.learning_rate)
    epsilon = _rmsprop_epsilon(config)
    return optax.rmsprop(config.learning_rate, decay=_DECAY, eps=epsilon, centered=True, eps_in_sqrt=True)


def _rmsprop_epsilon(config: AgentConfig) -> float:
    return 0.01 / config.batch_size**2


def make_step(
    config: AgentConfig,
) -> Callable[[Params, optax.OptState, Params], tuple[Params, optax.OptState]]:
    """(params, optimizer's state, gradient) -> both after a step of `make_optimizer`."""
    optimizer = make_optimizer(config)

    def by_xla(params: Params, state: Any, gradient: Params) -> tuple[Params, Any]:
        # Else XLA fuses the optimizer into the weight gradients' matrix products, which makes them slow loops.
        gradient = jax.lax.optimization_barrier(gradient)
        change, state = optimizer.update(gradient, state, params)
        ready = _heads_are_done(gradient)
        if ready is not None:
            change = jax.tree.map(lambda leaf: leaf + ready.astype(leaf.dtype), change)
        return optax.apply_updates(params, change), state

    def by_kernel(params: Params, state: Any, gradient: Params) -> tuple[Params, Any]:
        (moments, *others), outer = state, gradient.layers[0].weight
        ready = _heads_are_done(gradient)
        if ready is not None:
            outer = outer._replace(left=outer.left + ready.astype(outer.left.dtype))
        trees = params, moments.mu, moments.nu
        weight, mean, square = (tree.layers[0].weight for tree in trees)
        changed = centred_rmsprop(
            *(weight, mean, square, outer),
            rate=config.learning_rate,
            decay=_DECAY,
            epsilon=_rmsprop_epsilon(config),
        )
        # The rest is little.
        params, mu, nu, gradient = (_with_weight(tree, None) for tree in (*trees, gradient))
        after: Any
        change, after = optimizer.update(gradient, (moments._replace(mu=mu, nu=nu), *others), params)
        moments, *others = after
        trees = optax.apply_updates(params, change), moments.mu, moments.nu
        params, mu, nu = map(_with_weight, trees, changed)
        return params, (moments._replace(mu=mu, nu=nu), *others)

    def step(params: Params, state: Any, gradient: Params) -> tuple[Params, Any]:
        in_factors = isinstance(gradient.layers[0].weight, OuterProducts)
        return (by_kernel if in_factors else by_xla)(params, state, gradient)

    return step


def _heads_are_done(gradient: Params) -> Array | None:
    """A zero that is there when the heads' gradient has come to the trunk; None where there is no trunk.

    That is the last that reads the weights of heads. What changes them in place is made to wait for it: else XLA
    copies them, in case the change comes first. That is 64 MB a step for Atari.
    """
    of_trunk = jax.tree.leaves(gradient.trunk)
    return 0.0 * of_trunk[-1].ravel()[0] if of_trunk else None  # of its last layer, where the gradient comes first


def _first_layer(params: Params) -> tuple[Array, Array]:
    """The weight and the bias of the first layer of heads."""
    return params.layers[0].weight, params.layers[0].bias


def _with_first_layer(params: Params, weight: Any, bias: Any) -> Params:
    """With others, or with None, in place of the weight and the bias of the first layer of heads."""
    return eqx.tree_at(_first_layer, params, (weight, bias), is_leaf=lambda leaf: leaf is None)


def _with_weight(params: Params, weight: Any) -> Params:
    """With another weight, or None, of the first layer of heads."""
    return _with_first_layer(params, weight, params.layers[0].bias)
