"""The one agent: DQN, Ensemble, Thompson and Bootstrapped DQN are configurations of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.core.config import AgentConfig
from bootdqn.core.conv_trunk import PICTURES, make_picture_trunk
from bootdqn.core.kernels import why_not
from bootdqn.core.masks import make_mask
from bootdqn.core.networks import (
    NOT_FOLLOWED,
    InputScale,
    PriorNetwork,
    QNetwork,
    fitted_scale,
    make_heads,
    make_mlp_trunk,
    make_prior,
    normalised,
    trained_part,
    with_fixed_part,
    with_return,
)
from bootdqn.core.policies import (
    count_votes,
    epsilon_greedy,
    information_ratios,
    linear_schedule,
    random_argmax,
    summarise_belief,
    upper_bounds,
)
from bootdqn.core.update import has_table, make_gradient, make_learner_step
from bootdqn.errors import require
from bootdqn.types import Agent, Belief, Encoding, Learner, Params, Transition, UpdateMetrics


def make_network(
    config: AgentConfig,
    encoding: Encoding,
    num_actions: int,
    trunk: Callable[[Array], Any] | None = None,
    *,
    kernels: bool = False,
) -> Callable[[Array], QNetwork]:
    """Make the function (key) -> `QNetwork` for a configuration.

    Args:
        config: the agent's configuration.
        encoding: maps one observation to the network's input.
        num_actions: the number of actions A.
        trunk: (key) -> any Equinox module that maps an encoded observation to features [F], or [K, F] with others
            for every head, in place of the perceptron that `trunk_hidden` describes, or of the convolutions that
            pictures go through.
        kernels: whether our kernel computes those convolutions; `kernels.why_not` must have said that it can.
    """
    scale = 1.0 / config.num_heads if config.scale_trunk_gradient else 1.0
    encoded = jax.ShapeDtypeStruct((encoding.size,), jnp.float32)
    if encoding.kind == "pictures":
        encoded = jax.ShapeDtypeStruct(PICTURES, jnp.uint8)
    if trunk is None and encoding.kind == "pictures":
        require(not config.trunk_hidden, "pictures have a trunk of convolutions: trunk_hidden must be empty")
        trunk = partial(make_picture_trunk, kernels=kernels)
    lookup = encoding.kind == "one_hot" and trunk is None and not config.trunk_hidden
    scales = config.scale_inputs and encoding.kind in ("vector", "bytes")

    def network(key: Array) -> QNetwork:
        trunk_key, head_key = jax.random.split(key)
        prior = None
        if config.prior_scale > 0:
            prior_key = jax.random.fold_in(key, 0)
            prior = make_prior(prior_key, encoding, num_actions, scales=config.prior_scales)
        if trunk is not None:
            shared = trunk(trunk_key)
        elif config.trunk_hidden:
            shared = make_mlp_trunk(trunk_key, (encoding.size, *config.trunk_hidden))
        else:
            shared = eqx.nn.Identity()
        num_features = eqx.filter_eval_shape(shared, encoded).shape[-1]
        sizes = (num_features, *config.hidden, num_actions)
        heads = make_heads(
            head_key,
            sizes,
            num_heads=(1 + config.dueling) * config.num_heads,
            initial_spread=config.initial_spread,
            lookup=lookup,
            unit_fan_in=config.unit_fan_in,
        )
        inputs = None
        if scales:
            inputs = InputScale(jnp.zeros(encoding.size), jnp.ones(encoding.size))
        returns = jnp.full(config.num_heads, NOT_FOLLOWED) if config.head_candidates > 1 else None
        best_rest = jnp.float32(0) if config.bound_values else None
        return QNetwork(encoding, shared, heads, scale, config.dueling, prior, inputs, returns, best_rest)

    return network


def _static_part(network: Callable[[Array], QNetwork]) -> QNetwork:
    """Find the untrained part of a network, from shapes alone unless a user's trunk holds other arrays."""
    shapes = eqx.filter_eval_shape(network, jax.random.key(0))
    _, static = eqx.partition(shapes, _is_trained)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(static)):
        _, static = eqx.partition(network(jax.random.key(0)), eqx.is_inexact_array)
    return static


def _is_trained(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def make_agent(
    config: AgentConfig,
    encoding: Encoding,
    num_actions: int,
    trunk: Callable[[Array], Any] | None = None,
    *,
    kernels: bool = True,
) -> Agent:
    """Make the agent's pure functions.

    Args:
        config: the agent's configuration.
        encoding: maps one observation to the network's input.
        num_actions: the number of actions A.
        trunk: as for `make_network`.
        kernels: whether to learn from pictures by our own kernels, where they can be compiled.
    """
    used = None
    if encoding.kind == "pictures":  # for nothing else, as this may run a compiler
        used = (why_not() if kernels else "not asked for") or "compiled"
    network = make_network(config, encoding, num_actions, trunk, kernels=used == "compiled")
    static = _static_part(network)
    learner_step = make_learner_step(config, table=has_table(static))
    find_gradient = make_gradient(config, static, kernels=used == "compiled")
    some_explore = config.num_explorers < config.num_heads

    def values(params: Params, obs: Array) -> Array:
        return eqx.combine(params, static)(obs)

    def init(key: Array) -> Learner:
        params = eqx.filter(network(key), eqx.is_inexact_array)
        trained = trained_part(params)
        return Learner(params, jax.tree.map(jnp.copy, trained), learner_step.init(trained), jnp.int32(0))

    def fit(params: Params, observations: Array, low: Array, high: Array) -> Params:
        network = eqx.combine(params, static)
        inputs, prior = network.inputs, network.prior
        if inputs is not None:
            inputs = fitted_scale(jax.vmap(encoding)(observations), low, high)
        if isinstance(prior, PriorNetwork):
            prior = normalised(prior, observations, config.prior_scales, inputs)
        return replace(params, prior=eqx.filter(prior, eqx.is_inexact_array), inputs=inputs)

    def draw_head(key: Array, params: Params) -> Array:
        if config.head_candidates == 1:
            return draw_any_head(key)
        candidates = jax.random.permutation(key, config.num_heads)[: config.head_candidates]
        return candidates[jnp.argmax(params.returns[candidates])]

    def draw_any_head(key: Array) -> Array:
        return jax.random.randint(key, (), 0, config.num_heads)

    def note_return(params: Params, head: Array, episode_return: Array, best_rest: Array) -> Params:
        heads = jnp.arange(config.num_heads)
        acted = heads == head
        if some_explore:  # those who vote act together
            acted |= (heads >= config.num_explorers) & (head >= config.num_explorers)
        return with_return(params, acted, episode_return, best_rest)

    def keep_head(key: Array, head: Array) -> Array:
        if config.redraw_probability == 0:
            return head  # without the random numbers that would not be used
        coin_key, head_key = jax.random.split(jax.random.fold_in(key, 0))
        redraw = jax.random.uniform(coin_key) < config.redraw_probability
        return jnp.where(redraw, draw_any_head(head_key), head)

    def votes(q: Array) -> Array:
        return count_votes(q[-config.num_voters :])

    def greedy(key: Array, params: Params, obs: Array) -> Array:
        return random_argmax(key, votes(values(params, obs)))

    scores_of_all: dict[str, Callable[[Array], Array]] = {
        "vote": votes,
        "ucb": lambda q: upper_bounds(q, config.bound_width),
        "ids": lambda q: -information_ratios(q, config.bound_width, config.return_noise),
    }

    def act(key: Array, params: Params, head: Array, obs: Array, epsilon: Array | None) -> Array:
        head_key, tie_key, dither_key = jax.random.split(key, 3)
        if config.acting in scores_of_all:
            scores = scores_of_all[config.acting](values(params, obs))
        elif some_explore:
            q = values(params, obs)
            scores = jnp.where(head < config.num_explorers, q[head], votes(q))
        else:
            followed = head if config.acting == "committed_head" else draw_any_head(head_key)
            scores = eqx.combine(params, static).head(followed, obs)
        action = random_argmax(tie_key, scores)
        if epsilon is None:
            return action  # without the random numbers that would not be used
        return epsilon_greedy(dither_key, action, epsilon, num_actions)

    def epsilon(step: Array, head: Array) -> Array:
        fading = linear_schedule(step, config.epsilon_start, config.epsilon_end, config.epsilon_anneal_steps)
        return jnp.where(head < config.num_explorers, config.epsilon_end, fading) if some_explore else fading

    def update(learner: Learner, batch: Transition) -> tuple[Learner, UpdateMetrics, Array | None]:
        gradient, (metrics, errors) = find_gradient(learner.params, learner.target_params, batch)
        updates = learner.updates + 1
        copies = updates % config.target_period_updates == 0
        trained, target_params, opt_state = learner_step.step(
            trained_part(learner.params), learner.target_params, learner.opt_state, gradient, copies
        )
        params = with_fixed_part(trained, learner.params)
        return Learner(params, target_params, opt_state, updates), metrics, errors

    def belief(params: Params, obs: Array) -> Belief:
        return summarise_belief(values(params, obs), config.num_voters)

    draw_mask = make_mask(config.mask, config.num_heads, config.mask_probability)
    return Agent(
        init, fit, draw_head, keep_head, note_return, act, greedy, draw_mask, epsilon, update, belief, used
    )
