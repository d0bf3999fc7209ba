"""The one agent: DQN, Ensemble, Thompson and Bootstrapped DQN are configurations of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import tyro
from jax import Array

from bootdqn.errors import require, require_known, require_types
from bootdqn.losses import LOSS_KINDS, LossKind
from bootdqn.masks import MASK_KINDS, MaskKind, make_mask
from bootdqn.networks import QNetwork, make_heads, make_mlp_trunk
from bootdqn.pictures import PICTURES, make_picture_trunk
from bootdqn.policies import count_votes, epsilon_greedy, linear_schedule, random_argmax, summarise_belief
from bootdqn.types import Actor, Agent, Belief, Encoding, Learner, Params, Transition, UpdateMetrics
from bootdqn.updates import make_gradient, make_optimizer, make_step

Acting = Literal["committed_head", "head_per_step", "vote"]
Optimizer = Literal["adam", "rmsprop"]
MaskPer = Literal["episode", "step"]


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Everything that makes one agent differ from another."""

    num_heads: Annotated[int, tyro.conf.arg(name="heads")] = 10
    """K, the number of value functions."""
    hidden: tuple[int, ...] = (50, 50)
    """Width of every hidden layer of a head."""
    trunk_hidden: tuple[int, ...] = ()
    """Width of every layer that heads share; none means K separate networks."""
    initial_spread: float = 10.0
    """Output biases start uniform within this: how far heads differ about values they have no data on."""
    scale_trunk_gradient: bool = True
    """Divide the gradient that enters the shared trunk by K."""
    mask: MaskKind = "bernoulli"
    """Distribution of the bootstrap weights."""
    mask_probability: float = 1.0
    """p, the probability of 1 in a bernoulli mask; at 1 all heads share all data."""
    mask_per: MaskPer = "episode"
    """Draw one mask for a whole episode, or for every step."""
    acting: Acting = "committed_head"
    """Follow one head for an episode, another head every step, or the majority of the heads."""
    epsilon_start: float = 0.0
    """Probability of a uniformly random action at the first step."""
    epsilon_end: float = 0.0
    """The same once annealed."""
    epsilon_anneal_steps: int = 0
    """Environment steps over which epsilon moves linearly from start to end."""
    discount: float = 0.98
    """Gamma."""
    double_q: bool = True
    """Choose the next action by the online network, value it by the target network."""
    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1]; what is reported stays as it came."""
    loss: LossKind = "squared"
    """Loss of a temporal-difference error; huber has unit slope beyond 1."""
    optimizer: Optimizer = "adam"
    """Adam, or the centred RMSProp of the original DQN."""
    learning_rate: float = 1e-3
    """Step size of the optimizer."""
    batch_size: int = 32
    """Transitions an update."""
    replay_capacity: int = 100_000
    """Transitions that replay keeps."""
    learning_start_steps: int = 128
    """Environment steps before the first update."""
    learning_period_steps: int = 1
    """Environment steps from one update to the next."""
    target_period_updates: int = 20
    """Updates from one copy into the target network to the next."""

    def __post_init__(self):
        require_types(self)
        require(1 <= self.num_heads <= 2**20, f"heads must be 1 to 2**20, got {self.num_heads}")
        for name in ("hidden", "trunk_hidden"):
            sizes = getattr(self, name)
            require(
                all(1 <= size <= 2**20 for size in sizes), f"{name} sizes must be 1 to 2**20, got {list(sizes)}"
            )
        require_known("mask", self.mask, MASK_KINDS)
        require_known("mask_per", self.mask_per, get_args(MaskPer))
        require_known("acting", self.acting, get_args(Acting))
        require_known("loss", self.loss, LOSS_KINDS)
        require_known("optimizer", self.optimizer, get_args(Optimizer))
        p = self.mask_probability
        require(0 < p <= 1, f"mask_probability must be in (0, 1], got {p}")
        for name in ("epsilon_start", "epsilon_end", "discount"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must be in [0, 1], got {value}")
        for name in ("learning_rate", "initial_spread"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name} must be finite and not negative, got {value}")
        at_least_one = ("batch_size", "replay_capacity", "learning_period_steps", "target_period_updates")
        for name in (*at_least_one, "epsilon_anneal_steps", "learning_start_steps"):
            value, least = getattr(self, name), int(name in at_least_one)
            require(value >= least, f"{name} must be at least {least}, got {value}")
            require(value < 2**31, f"{name} must be below 2**31, got {value}")
        require(
            self.batch_size <= self.replay_capacity,
            f"batch_size ({self.batch_size}) must not exceed replay_capacity ({self.replay_capacity})",
        )
        require(
            self.epsilon_start == self.epsilon_end or self.epsilon_anneal_steps > 0,
            f"epsilon goes from {self.epsilon_start} to {self.epsilon_end}: give epsilon_anneal_steps",
        )

    @property
    def dithers(self) -> bool:
        """Whether random actions never cease: such an agent is judged by evaluations without them."""
        return self.epsilon_end > 0


_BOOT = AgentConfig()
AGENTS: dict[str, AgentConfig] = {
    "boot": _BOOT,
    "boot+": replace(_BOOT, scale_trunk_gradient=False),
    "thompson": replace(_BOOT, acting="head_per_step", initial_spread=3.0),
    "ensemble": replace(_BOOT, acting="vote", learning_rate=3e-3),
    "dqn": replace(_BOOT, num_heads=1, epsilon_start=1.0, epsilon_end=0.1, epsilon_anneal_steps=10_000),
}
"""Named configurations of the one agent; each has its own best of the grid that `chain-tuning` tries for all."""

_FOR_GYMNASIUM: dict[str, Any] = {
    "trunk_hidden": (256,),
    "hidden": (64,),
    "initial_spread": 1.0,
    "discount": 0.99,
    "learning_rate": 2e-3,
    "batch_size": 64,
    "learning_start_steps": 1000,
    "learning_period_steps": 1,
    "target_period_updates": 100,
}
GYM_AGENTS: dict[str, AgentConfig] = {name: replace(agent, **_FOR_GYMNASIUM) for name, agent in AGENTS.items()}
"""The same for Gymnasium environments, where values are larger and heads share features; tried on CartPole."""

_FOR_ATARI: dict[str, Any] = {
    "trunk_hidden": (),
    "hidden": (512,),
    "initial_spread": 0.04,
    "epsilon_start": 1.0,
    "epsilon_end": 0.01,
    "epsilon_anneal_steps": 1_000_000,
    "discount": 0.99,
    "clip_rewards": True,
    "loss": "huber",
    "optimizer": "rmsprop",
    "learning_rate": 2.5e-4,
    "batch_size": 32,
    "replay_capacity": 1_000_000,
    "learning_start_steps": 50_000,
    "learning_period_steps": 4,
    "target_period_updates": 2_500,
}
ATARI_AGENTS: dict[str, AgentConfig] = {name: replace(agent, **_FOR_ATARI) for name, agent in AGENTS.items()}
"""The same with the paper's settings for Atari (appendix D); the target network is 10,000 steps old at most."""


def make_network(
    config: AgentConfig, encoding: Encoding, num_actions: int, trunk: Callable[[Array], Any] | None = None
) -> Callable[[Array], QNetwork]:
    """A maker (key) -> `QNetwork` for a configuration.

    Args:
        config: the agent's.
        encoding: from one observation to the network's input.
        num_actions: A.
        trunk: (key) -> any Equinox module that maps an encoded observation to features [F], in place of the
            perceptron that `trunk_hidden` describes, or of the convolutions that pictures go through.
    """
    scale = 1.0 / config.num_heads if config.scale_trunk_gradient else 1.0
    encoded = jax.ShapeDtypeStruct((encoding.size,), jnp.float32)
    if encoding.kind == "pictures":
        encoded = jax.ShapeDtypeStruct(PICTURES, jnp.uint8)
    if trunk is None and encoding.kind == "pictures":
        require(not config.trunk_hidden, "pictures have a trunk of convolutions: trunk_hidden must be empty")
        trunk = make_picture_trunk
    lookup = encoding.kind == "one_hot" and trunk is None and not config.trunk_hidden

    def network(key: Array) -> QNetwork:
        trunk_key, head_key = jax.random.split(key)
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
            num_heads=config.num_heads,
            initial_spread=config.initial_spread,
            lookup=lookup,
        )
        return QNetwork(encoding, shared, heads, scale)

    return network


def _static_part(network: Callable[[Array], QNetwork]) -> QNetwork:
    """What of a network is not trained; computed from shapes alone unless a user's trunk holds other arrays."""
    shapes = eqx.filter_eval_shape(network, jax.random.key(0))
    _, static = eqx.partition(shapes, _is_trained)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(static)):
        _, static = eqx.partition(network(jax.random.key(0)), eqx.is_inexact_array)
    return static


def _is_trained(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def make_agent(config: AgentConfig, network: Callable[[Array], QNetwork], num_actions: int) -> Agent:
    """The agent's pure functions, for networks made by `network` (key)."""
    static = _static_part(network)
    optimizer, find_gradient, take_step = make_optimizer(config), make_gradient(config, static), make_step(config)

    def values(params: Params, obs: Array) -> Array:
        return eqx.combine(params, static)(obs)

    def init(key: Array) -> Learner:
        params = eqx.filter(network(key), eqx.is_inexact_array)
        target_params = jax.tree.map(jnp.copy, params)
        return Learner(params, target_params, optimizer.init(params), jnp.int32(0))

    def begin(key: Array) -> Actor:
        return Actor(jax.random.randint(key, (), 0, config.num_heads))

    def greedy(key: Array, learner: Learner, obs: Array) -> Array:
        return random_argmax(key, count_votes(values(learner.params, obs)))

    def act(key: Array, learner: Learner, actor: Actor, obs: Array, epsilon: Array | None) -> Array:
        head_key, tie_key, dither_key = jax.random.split(key, 3)
        if config.acting == "vote":
            action = greedy(tie_key, learner, obs)
        else:
            head = actor.head if config.acting == "committed_head" else begin(head_key).head
            action = random_argmax(tie_key, eqx.combine(learner.params, static).head(head, obs))
        if epsilon is None:
            return action  # without the random numbers that would not be used
        return epsilon_greedy(dither_key, action, epsilon, num_actions)

    def epsilon(step: Array) -> Array:
        return linear_schedule(step, config.epsilon_start, config.epsilon_end, config.epsilon_anneal_steps)

    def update(learner: Learner, batch: Transition) -> tuple[Learner, UpdateMetrics]:
        gradient, metrics = find_gradient(learner.params, learner.target_params, batch)
        params, opt_state = take_step(learner.params, learner.opt_state, gradient)
        updates = learner.updates + 1
        target_params = jax.lax.cond(
            updates % config.target_period_updates == 0,
            lambda: params,
            lambda: learner.target_params,
        )
        return Learner(params, target_params, opt_state, updates), metrics

    def belief(learner: Learner, obs: Array) -> Belief:
        return summarise_belief(values(learner.params, obs))

    draw_mask = make_mask(config.mask, config.num_heads, config.mask_probability)
    return Agent(init, begin, act, greedy, draw_mask, epsilon, update, belief)
