"""Types that all modules share: transitions, learners, agents, beliefs, environments."""

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
    """The observation that was acted on."""
    action: Array
    """The action taken."""
    reward: Array
    """The reward of the action; with noise, one per head [K]."""
    discount: Array
    """Gamma, or 0 at termination. A truncation keeps gamma."""
    next_obs: Array
    """The true final observation of the step, never the one after a reset."""
    mask: Array
    """Bootstrap weights [K], drawn once and stored."""


class Learner(NamedTuple):
    """Everything that an update changes."""

    params: Params
    """Parameters of the online network, with those of its prior, which no update changes."""
    target_params: Params
    """Parameters of the target network, which has the prior of the online network."""
    opt_state: Any
    """State of the optimizer."""
    updates: Array
    """Number of updates so far (a scalar that all vmapped seeds share)."""


class Belief(NamedTuple):
    """What all heads together say about one observation."""

    q: Array
    """Value of every action under every head [K, A]."""
    mean: Array
    """Mean value over heads of every action [A]."""
    std: Array
    """Standard deviation over heads of the value of every action [A]."""
    votes: Array
    """How many heads prefer each action [A], of those that vote; a head with tied actions splits its vote."""
    entropy: Array
    """Entropy of the vote shares in nats: 0 when all heads agree."""


class UpdateMetrics(NamedTuple):
    """Numbers that one update reports."""

    loss: Array
    """Mean over heads of the masked loss."""
    q_mean: Array
    """Mean value of the sampled actions over the batch and the heads."""
    q_spread: Array
    """Standard deviation over heads of those values, averaged over the batch."""


class Agent(NamedTuple):
    """An agent as pure, jittable functions; made by `bootdqn.core.agent.make_agent`."""

    init: Callable[[Array], Learner]
    """(key) -> learner with initial parameters."""
    fit: Callable[[Params, Array, Array, Array], Params]
    """(params, observations [N, ...], bounds of the encoded ones, low and high [size]) -> params whose inputs and
    prior have their scales; a prior over states has it over all states, and stays as it is."""
    draw_head: Callable[[Array, Params], Array]
    """(key, params) -> the head that is followed for an episode."""
    keep_head: Callable[[Array, Array], Array]
    """(key of acting, head) -> the head to follow from this step on, which is another where heads are redrawn."""
    note_return: Callable[[Params, Array, Array, Array], Params]
    """(params, head, return of an episode in which it was followed, largest discounted one from a step on) ->
    params by which heads are drawn and values are bounded."""
    act: Callable[[Array, Params, Array, Array, Array | None], Array]
    """(key, params, committed head, obs, epsilon) -> action; epsilon is None for no random actions."""
    greedy: Callable[[Array, Params, Array], Array]
    """(key, params, obs) -> action by majority vote, without dithering: the evaluation policy."""
    draw_mask: Callable[[Array], Array]
    """(key) -> bootstrap weights [K]."""
    epsilon: Callable[[Array, Array], Array]
    """(env step, committed head) -> probability of a uniformly random action."""
    update: Callable[[Learner, Transition], tuple[Learner, UpdateMetrics, Array | None]]
    """(learner, batch of transitions [N, ...]) -> (learner, metrics, mean absolute errors [N] of the heads that
    learn from each transition, or None where replay has no priorities), without randomness."""
    belief: Callable[[Params, Array], Belief]
    """(params, obs) -> belief of all heads about one observation."""
    kernels: str | None
    """"compiled" where our kernels learn from pictures, else the reason why XLA does; None without pictures."""


class Step(NamedTuple):
    """What an environment returns for an action."""

    obs: Array
    """The observation after the action."""
    reward: Array
    """The reward of the action."""
    terminated: Array
    """Whether the episode ended in a state with no future."""
    truncated: Array
    """Whether the episode was cut short, by a time limit for instance."""


class HostStep(NamedTuple):
    """What the environments of all slots return for their actions; arrays [S, ...]."""

    next_obs: NDArray[Any]
    """True next observations: at the end of an episode its last one, never the one after a reset."""
    reward: NDArray[np.float32]
    """Rewards of the actions [S]."""
    terminated: NDArray[np.bool_]
    """Whether the episode ended in a state with no future [S]."""
    truncated: NDArray[np.bool_]
    """Whether the episode was cut short [S]."""
    valid: NDArray[np.bool_]
    """Whether the slot made a step; False where its environment was only reset."""
    obs: NDArray[Any]
    """Observations to act on next."""
    fresh: NDArray[np.bool_]
    """Whether `obs` begins an episode."""
    life_lost: NDArray[np.bool_]
    """Whether a life was lost: training sees no future beyond, though the episode continues."""


@dataclass(frozen=True)
class Encoding:
    """How an observation becomes the network's input vector [size].

    Tabular environments observe a state index; the encoding spreads it over `size` inputs. Bytes are scaled to at
    most 1. Pictures stay bytes in their shape, for a trunk of convolutions. That keeps replay small, and acting
    and learning share the same function.
    """

    kind: Literal["vector", "bytes", "pictures", "one_hot", "thermometer"]
    """How observations are encoded."""
    size: int
    """The number of inputs of the network."""

    @property
    def num_states(self) -> int:
        """How many states an observation tells apart; 0 where it is not the index of a state."""
        return self.size if self.kind in ("one_hot", "thermometer") else 0

    def __call__(self, obs: Array) -> Array:
        """Encode one observation as a vector [size]; pictures stay as they are."""
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
        """The number of actions A."""
        ...

    @property
    def horizon(self) -> int:
        """The number of steps per episode."""
        ...

    @property
    def encoding(self) -> Encoding:
        """How an observation becomes the network's input."""
        ...

    @property
    def mdp(self) -> MDP:
        """The exact decision problem, for agents that see the state."""
        ...

    @property
    def solved_return(self) -> float:
        """The expected return of an optimal episode."""
        ...

    def is_optimal(self, state: Any, episode_return: Array) -> Array:
        """Say whether an episode was optimal, from its final state and its return."""
        ...

    def regret(self, state: Any, episode_return: Array) -> Array:
        """Compute the expected loss of an episode's actions, at best 0, from its final state and its return."""
        ...

    def reset(self, key: Array) -> tuple[Any, Array]:
        """Start an episode; returns the first state and observation."""
        ...

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, Step]:
        """Carry out an action; returns the next state and what the agent is told."""
        ...
