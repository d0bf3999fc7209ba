"""The words everything else speaks: transitions, learners, actors, beliefs, environments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.tabular.mdp import MDP

Params = Any
"""A pytree of arrays: the trainable part of a network."""


class Transition(NamedTuple):
    """One step of experience, with any leading axes."""

    obs: Array
    action: Array
    reward: Array
    discount: Array
    """Gamma, or 0 at termination. A truncation keeps gamma."""
    next_obs: Array
    """The true final observation of the step, never the one after a reset."""
    mask: Array
    """Bootstrap weights [K], drawn once and stored."""


class Learner(NamedTuple):
    """What learning changes."""

    params: Params
    target_params: Params
    opt_state: Any
    updates: Array
    """How many updates have been made (a scalar that all vmapped seeds share)."""


class Actor(NamedTuple):
    """Who acts during an episode."""

    head: Array
    """The committed head."""


class Belief(NamedTuple):
    """What all heads say about one observation."""

    q: Array
    """Value of every action under every head [K, A]."""
    mean: Array
    """Mean over heads [A]."""
    std: Array
    """Standard deviation over heads [A]."""
    votes: Array
    """How many heads prefer each action [A]; a head with tied actions splits its vote."""
    entropy: Array
    """Entropy of the vote shares in nats: 0 when all heads agree."""


class UpdateMetrics(NamedTuple):
    """What one update reports."""

    loss: Array
    """Mean over heads of the masked loss."""
    q_mean: Array
    """Mean value of the sampled actions over the batch and the heads."""
    q_spread: Array
    """Standard deviation over heads of those values, averaged over the batch."""


class Agent(NamedTuple):
    """Pure, jittable functions; made by `bootdqn.agent.make_agent`."""

    init: Callable[[Array], Learner]
    """(key) -> learner."""
    begin: Callable[[Array], Actor]
    """(key) -> actor: sample the head for an episode."""
    act: Callable[[Array, Learner, Actor, Array, Array | None], Array]
    """(key, learner, actor, obs, epsilon, or None for no random actions) -> action."""
    greedy: Callable[[Array, Learner, Array], Array]
    """(key, learner, obs) -> action by majority vote, without dithering: the evaluation policy."""
    draw_mask: Callable[[Array], Array]
    """(key) -> bootstrap weights [K]."""
    epsilon: Callable[[Array], Array]
    """(env step) -> probability of a uniformly random action."""
    update: Callable[[Learner, Transition], tuple[Learner, UpdateMetrics]]
    """(learner, batch) -> (learner, metrics). No randomness; knows nothing of replay."""
    belief: Callable[[Learner, Array], Belief]
    """(learner, obs) -> belief."""


class Step(NamedTuple):
    """What an environment answers to an action."""

    obs: Array
    reward: Array
    terminated: Array
    """The episode ended in a state with no future."""
    truncated: Array
    """The episode was cut short, by a time limit for instance."""


class HostStep(NamedTuple):
    """What all slots answer to their actions; arrays [S, ...]."""

    next_obs: NDArray[Any]
    """True next observations: at the end of an episode its last one, never that after a reset."""
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    """Whether the slot made a step; False where it was only reset."""
    obs: NDArray[Any]
    """What to act on next."""
    fresh: NDArray[np.bool_]
    """Whether that begins an episode."""
    life_lost: NDArray[np.bool_]
    """A life was lost: training sees no future beyond, though the episode goes on."""


@dataclass(frozen=True)
class Encoding:
    """How an observation becomes the network's input vector [size].

    Tabular environments observe a state index; the encoding spreads it over `size` inputs. Bytes are scaled to at
    most 1. Pictures stay bytes in their shape, for a trunk that sees. That keeps replay small, and it is the same
    function in acting and in learning.
    """

    kind: Literal["vector", "bytes", "pictures", "one_hot", "thermometer"]
    size: int

    @property
    def num_states(self) -> int:
        """How many states an observation tells apart; 0 where it is not the index of one."""
        return self.size if self.kind in ("one_hot", "thermometer") else 0

    def __call__(self, obs: Array) -> Array:
        """Features [size] of one observation; of pictures, themselves."""
        if self.kind == "pictures":
            return obs
        if self.kind == "vector":
            return obs.astype(jnp.float32)
        if self.kind == "bytes":
            return obs.astype(jnp.float32) / 255
        states = jnp.arange(self.size)
        return (states == obs if self.kind == "one_hot" else states <= obs).astype(jnp.float32)


class Env(Protocol):
    """An environment that lives inside a compiled program; every episode lasts exactly `horizon` steps."""

    @property
    def num_actions(self) -> int:
        """A."""
        ...

    @property
    def horizon(self) -> int:
        """Steps an episode."""
        ...

    @property
    def encoding(self) -> Encoding:
        """From an observation to the network's input."""
        ...

    @property
    def mdp(self) -> MDP:
        """The exact problem, for agents that see the state."""
        ...

    @property
    def solved_return(self) -> float:
        """What an optimal episode collects, in expectation."""
        ...

    def is_optimal(self, state: Any, episode_return: Array) -> Array:
        """(state at the end of an episode, its return) -> whether nothing better could have been done."""
        ...

    def regret(self, state: Any, episode_return: Array) -> Array:
        """(state at the end of an episode, its return) -> what its actions lost in expectation; at best 0."""
        ...

    def reset(self, key: Array) -> tuple[Any, Array]:
        """(key) -> (state, observation)."""
        ...

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, Step]:
        """(key, state, action) -> (state, step)."""
        ...
