"""From a batch to the next parameters: the gradient of all heads' losses, and the optimizer's step.

Nearly all numbers of a network for pictures are the weights of the heads' first layer. Their gradient is a sum of
outer products over the batch, and our kernel takes it in that form, so that it is never written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.core.kernels import OuterProducts, centred_rmsprop
from bootdqn.core.losses import error_loss, mean_error, pick, shortfall, td_target
from bootdqn.core.networks import QNetwork, StackedLinear, StackedTable, trained_part, with_fixed_part
from bootdqn.types import Params, Transition, UpdateMetrics

if TYPE_CHECKING:
    from bootdqn.core.config import AgentConfig

Reported = tuple[UpdateMetrics, Array | None]
"""Metrics of an update, and the absolute errors of its transitions [N], which prioritised replay needs."""

_DECAY = 0.95
"""Decay of the running means of centred RMSProp."""
_B2, _EPSILON = 0.999, 1e-8
"""Adam's decay of second moments, and what it adds to their root."""


def make_gradient(
    config: AgentConfig, static: QNetwork, *, kernels: bool
) -> Callable[[Params, Params, Transition], tuple[Params, Reported]]:
    """Make the function (params, target params, batch) -> (gradient of the heads' losses, (metrics, errors [N])).

    Args:
        config: the agent's configuration.
        static: the part of its network that is not trained.
        kernels: whether there are kernels; then RMSProp gets the gradient of the heads' first weights as
            `OuterProducts` where observations are pictures.
    """
    hopes = 2 * jnp.asarray(config.prior_scales)

    def losses_of(
        q: Array,
        next_q: Array,
        next_target_q: Array,
        target_q: Array | None,
        best_rest: Array | None,
        transition: Transition,
    ) -> tuple[Array, Array, Array | None]:
        """Compute the losses and the predicted values of all heads [K] for one transition, and its error [].

        `target_q` are the target network's values [K, A] of the observation, where there is an action gap.
        """
        predicted = pick(q, transition.action)
        clips = config.clip_rewards and not config.clips_before_storing
        reward = jnp.clip(transition.reward, -1, 1) if clips else transition.reward
        target = td_target(
            reward,
            transition.discount,
            next_q,
            next_target_q,
            double_q=config.double_q,
            ceiling=None if best_rest is None else best_rest + hopes,
        )
        if target_q is not None:
            target -= config.action_gap * shortfall(target_q, transition.action)
        error = mean_error(target - predicted, transition.mask) if config.prioritised else None
        return transition.mask * error_loss(target - predicted, config.loss), predicted, error

    def total(losses: Array, predicted: Array, errors: Array | None) -> tuple[Array, Reported]:
        # A mean over the batch and a sum over heads: no head's gradient depends on how many there are.
        per_head = losses.mean(axis=0)
        metrics = UpdateMetrics(per_head.mean(), predicted.mean(), predicted.std(axis=1).mean())
        return per_head.sum(), (metrics, errors)

    def by_transition(params: Params, target_params: Params, batch: Transition) -> tuple[Params, Reported]:
        target = eqx.combine(with_fixed_part(target_params, params), static)

        def loss(trained: Params) -> tuple[Array, Reported]:
            online = eqx.combine(with_fixed_part(trained, params), static)

            def of_one(transition: Transition) -> tuple[Array, Array, Array | None]:
                q = online(transition.obs)
                next_q = jax.lax.stop_gradient(online(transition.next_obs)) if config.double_q else jnp.zeros(())
                target_q = target(transition.obs) if config.action_gap else None
                return losses_of(q, next_q, target(transition.next_obs), target_q, params.best_rest, transition)

            return total(*jax.vmap(of_one)(batch))

        return jax.grad(loss, has_aux=True)(trained_part(params))

    def values_of_batch(network: QNetwork, obs: Array) -> Array:
        y = network.layers[0].of_batch(network.features_of_batch(obs))
        return network.with_priors(jax.vmap(network.values_above)(y), obs)

    def by_batch(params: Params, target_params: Params, batch: Transition) -> tuple[Params, Reported]:
        """Compute the gradient with the heads' first layer as products, or as a lookup, of the whole batch.

        Its weights take longer to read than to multiply: they are read once for both observations.
        """
        online = eqx.combine(params, static)
        target = eqx.combine(with_fixed_part(target_params, params), static)
        first, *above = online.layers

        def features_of(trunk: Params) -> Array:
            return eqx.combine(replace(params, trunk=trunk), static).features_of_batch(batch.obs)

        features, back_to_trunk = (batch.obs, None) if looks_up else jax.vjp(features_of, params.trunk)
        if features.ndim > 2:  # a trunk of the user's own may have other features for every head
            return by_transition(params, target_params, batch)
        size = len(features)
        if config.double_q:
            y = first.of_batch(jnp.concatenate([features, online.features_of_batch(batch.next_obs)]))
            next_q = online.with_priors(jax.vmap(online.values_above)(y[size:]), batch.next_obs)
        else:
            y, next_q = first.of_batch(features), jnp.zeros(size)
        next_target_q = values_of_batch(target, batch.next_obs)
        target_q = values_of_batch(target, batch.obs) if config.action_gap else None

        def loss(above: list[StackedLinear], y: Array) -> tuple[Array, Reported]:
            q = jax.vmap(replace(online, layers=(first, *above)).values_above)(y)
            q = online.with_priors(q, batch.obs)
            losses = jax.vmap(losses_of, in_axes=(0, 0, 0, 0, None, 0))
            return total(*losses(q, next_q, next_target_q, target_q, params.best_rest, batch))

        (above, left), reported = jax.grad(loss, argnums=(0, 1), has_aux=True)(above, y[:size])
        trunk, weight = params.trunk, Rows(features, left)
        if back_to_trunk is not None:
            to_features = jnp.tensordot(left, first.weight, axes=((1, 2), (0, 1)))
            (trunk,) = back_to_trunk(to_features.astype(features.dtype))
            if kernels and config.optimizer == "rmsprop":
                weight = OuterProducts(left, features)
            else:
                weight = jnp.tensordot(left, features, axes=(0, 0))
        layers = (replace(first, weight=weight, bias=left.sum(axis=0)), *above)
        return replace(trained_part(params), trunk=trunk, layers=layers), reported

    looks_up = config.sparse_step and has_table(static)
    return by_batch if looks_up or static.encoding.kind == "pictures" else by_transition


class Rows(NamedTuple):
    """A gradient of a table's weights [S, K, out] that is 0 but for the rows that a batch read."""

    indices: Array
    """The rows that were read [N]; some may be equal."""
    values: Array
    """The gradient by way of each [N, K, out]."""


def has_table(network: QNetwork) -> bool:
    """Return whether heads look up their first layer by an index."""
    return isinstance(network.layers[0], StackedTable)


class Optimizer(NamedTuple):
    """An optimizer as two pure functions."""

    init: Callable[[Params], Any]
    """(params) -> the optimizer's state before the first step."""
    step: Callable[[Params, Any, Params], tuple[Params, Any]]
    """(params, state, gradient) -> both after a step."""


class LearnerStep(NamedTuple):
    """What an update does with its gradient, as two pure functions."""

    init: Callable[[Params], Any]
    """(params) -> the optimizer's state before the first step."""
    step: Callable[[Params, Params, Any, Params, Array], tuple[Params, Params, Any]]
    """(params, target params, state, gradient, whether to copy) -> parameters, target parameters and state after a
    step of the optimizer; where parameters are copied, the target's equal the new ones."""


class Moments(NamedTuple):
    """The state of centred RMSProp: running means, with a number for every parameter."""

    mu: Params
    """Running means of the gradient."""
    nu: Params
    """Running means of the squared gradient."""


def make_learner_step(config: AgentConfig, *, table: bool) -> LearnerStep:
    """Make the step that a configuration describes, and the copy to the target network.

    Args:
        config: the agent's configuration.
        table: whether heads look up their first layer, so that a step may be sparse.
    """
    if config.sparse_step and table:
        return _make_sparse_step(config)
    optimizer = make_optimizer(config)

    def step(
        params: Params, target_params: Params, state: Any, gradient: Params, copies: Array
    ) -> tuple[Params, Params, Any]:
        params, state = optimizer.step(params, state, gradient)
        return params, jax.lax.cond(copies, lambda: params, lambda: target_params), state

    return LearnerStep(optimizer.init, step)


def make_optimizer(config: AgentConfig) -> Optimizer:
    """Make the optimizer that a configuration names: Adam, or the original DQN's centred RMSProp."""
    return _make_rmsprop(config) if config.optimizer == "rmsprop" else _make_adam(config)


def _make_adam(config: AgentConfig) -> Optimizer:
    import optax  # here, as importing it takes a tenth of a second

    adam = optax.adam(config.learning_rate)

    def step(params: Params, state: Any, gradient: Params) -> tuple[Params, Any]:
        gradient = _apart(gradient)
        change, state = adam.update(gradient, state, params)
        return optax.apply_updates(params, jax.tree.map(_waiting_for(gradient), change)), state

    return Optimizer(adam.init, step)


class SparseState(NamedTuple):
    """The state of Adam with a table of which every step changes a few rows."""

    adam: Any
    """The state for all other parameters."""
    nu: Array
    """Running means of the squared gradient of the table [S, K, out], over the steps that changed the row."""
    touched: Array
    """Rows that were changed by each of the last steps [target period, N]; S where there was none."""


def _make_sparse_step(config: AgentConfig) -> LearnerStep:
    """Make Adam that changes only those rows of the heads' table that a batch read.

    Adam moves a row on for some twenty steps after its last gradient. Here it makes all of that way at once: rows
    have no momentum. Their second moments decay with the steps that change them, and not with all steps.
    """
    adam = _make_adam(config)
    shape = config.target_period_updates, config.batch_size

    def apart(params: Params) -> tuple[Params, Any]:
        first, *above = params.layers
        return replace(params, layers=(replace(first, weight=None), *above)), first.weight

    def together(params: Params, table: Array) -> Params:
        first, *above = params.layers
        return replace(params, layers=(replace(first, weight=table), *above))

    def init(params: Params) -> SparseState:
        rest, table = apart(params)
        return SparseState(adam.init(rest), jnp.zeros_like(table), jnp.full(shape, len(table), jnp.int32))

    def step(
        params: Params, target_params: Params, state: SparseState, gradient: Params, copies: Array
    ) -> tuple[Params, Params, SparseState]:
        (rest, table), (rest_target, target_table) = apart(params), apart(target_params)
        rest_gradient, rows = apart(gradient)
        rest, adam_state = adam.step(rest, state.adam, rest_gradient)
        count = adam_state[0].count
        index, changed, nu = _changed_rows(table, state.nu, rows, count, config.learning_rate)
        touched = state.touched.at[count % len(state.touched)].set(index)

        def copied() -> tuple[Params, Array, Array]:
            # Only rows that differ: first as they were before this step, then those that it changed.
            before = table.at[touched.ravel()].get(mode="fill", fill_value=0)
            target = target_table.at[touched.ravel()].set(before, mode="drop")
            return rest, target.at[index].set(changed, mode="drop"), 0.0 * before[0, 0, 0]

        rest_target, target_table, zero = jax.lax.cond(
            copies, copied, lambda: (rest_target, target_table, jnp.float32(0))
        )
        # Adding this zero lets the table change only once it has been copied from. It then changes in place; else
        # XLA keeps a copy of all of it at every step.
        table = table.at[index].set(changed + zero, mode="drop")
        return together(rest, table), together(rest_target, target_table), SparseState(adam_state, nu, touched)

    return LearnerStep(init, step)


def _changed_rows(
    table: Array, nu: Array, gradient: Rows, count: Array, rate: float
) -> tuple[Array, Array, Array]:
    """Take a step of Adam without momentum in the rows that a batch read.

    Returns:
        Indices of these rows [N], beyond the table where one is there already; what they become [N, K, out]; and
        the running means of all rows.
    """
    index, size = gradient.indices, len(gradient.indices)
    first = jnp.argmax(index[:, None] == index[None], axis=1)  # where a row was first read
    total = jnp.zeros_like(gradient.values).at[first].add(gradient.values)
    index = jnp.where(first == jnp.arange(size), index, len(table))  # beyond the table: neither read nor written
    squares = _B2 * nu.at[index].get(mode="fill", fill_value=0) + (1 - _B2) * jnp.square(total)
    change = -rate * total / (jnp.sqrt(squares / (1 - _B2 ** count.astype(jnp.float32))) + _EPSILON)
    changed = table.at[index].get(mode="fill", fill_value=0) + change
    return index, changed, nu.at[index].set(squares, mode="drop")


def _make_rmsprop(config: AgentConfig) -> Optimizer:
    """Make centred RMSProp, which takes the gradient of weights [K, out, in] as `OuterProducts`, too.

    The original sums gradients over the batch and adds 0.01 under the root; ours are means, so the constant is
    divided by the squared batch size and the step stays the same.
    """
    rate, epsilon = config.learning_rate, 0.01 / config.batch_size**2

    def init(params: Params) -> tuple[Moments]:
        mu, nu = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return (Moments(mu, nu),)  # a tuple of one, since checkpoints name these arrays `opt_state.0.mu` and so on

    def step(params: Params, state: tuple[Moments], gradient: Params) -> tuple[Params, tuple[Moments]]:
        gradient = _apart(gradient)
        wait = _waiting_for(gradient)

        def step_one(weight: Array, mean: Array, square: Array, gradient: Array | OuterProducts):
            if isinstance(gradient, OuterProducts):
                outer = gradient._replace(left=wait(gradient.left))
                return centred_rmsprop(weight, mean, square, outer, rate=rate, decay=_DECAY, epsilon=epsilon)
            mean = (1 - _DECAY) * gradient + _DECAY * mean
            square = (1 - _DECAY) * gradient**2 + _DECAY * square
            change = -rate * (jax.lax.rsqrt(square - mean**2 + epsilon) * gradient)
            return weight + wait(change), mean, square

        leaves, structure = jax.tree.flatten(params)
        others = (structure.flatten_up_to(tree) for tree in (*state[0], gradient))
        params, mu, nu = map(structure.unflatten, zip(*map(step_one, leaves, *others), strict=True))
        return params, (Moments(mu, nu),)

    return Optimizer(init, step)


def _apart(gradient: Params) -> Params:
    """Keep XLA from fusing the optimizer into the weight gradients' products, which makes them slow loops."""
    return jax.lax.optimization_barrier(gradient)


def _waiting_for(gradient: Params) -> Callable[[Array], Array]:
    """Make a function that adds a zero to an array, one that is known once the trunk has its gradient.

    The way back to the trunk is the last that reads the weights of heads. What changes them in place is made to
    wait for it: else XLA copies them, in case the change comes first. That is 64 MB a step for Atari.
    """
    of_trunk = jax.tree.leaves(gradient.trunk)
    if not of_trunk:
        return lambda x: x
    ready = 0.0 * of_trunk[-1].ravel()[0]  # of its last layer, where the gradient comes first
    return lambda x: x + ready.astype(x.dtype)
