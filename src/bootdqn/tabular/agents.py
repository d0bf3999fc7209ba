"""Tabular baselines, which see the state: each is a frozen dataclass of its parameters with three pure methods.

`init` makes an empty memory, `plan` turns it into values of actions [H, S, A] before an episode, which the agent
then follows greedily or epsilon-greedily, and `update` adds the episode to the memory. Unless said otherwise,
defaults are those of TabulaRL (github.com/iosband/TabulaRL), the tabular code of the paper's first author.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from bootdqn.errors import require
from bootdqn.tabular.mdp import Shape, backward, plan


class Trajectory(NamedTuple):
    """The transitions of one episode, as arrays [H]."""

    states: Array
    actions: Array
    rewards: Array
    next_states: Array
    """The states after every action; the last one is not part of the episode."""


class TabularAgent(Protocol):
    """A tabular baseline, whose fields are its parameters and whose methods are pure and can be compiled."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def epsilon(self) -> float:
        """The probability of a uniformly random action."""
        ...

    def init(self, shape: Shape) -> Any:
        """Return the memory before the first episode."""
        ...

    def plan(self, key: Array, shape: Shape, memory: Any, episode: Array) -> Array:
        """Return the values of actions [H, S, A] to follow in an episode, whose number counts from 1."""
        ...

    def update(self, shape: Shape, memory: Any, trajectory: Trajectory) -> Any:
        """Return the memory after an episode."""
        ...


class Counts(NamedTuple):
    """The data that an agent has seen, counted over all steps because the problem is the same at each."""

    transitions: Array
    """How often every next state was reached [S, A, S]."""
    reward_mean: Array
    """The mean reward [S, A], or 0 without data; single precision keeps it better than the sum."""

    @property
    def visits(self) -> Array:
        """How often every action was taken [S, A]."""
        return self.transitions.sum(axis=-1)

    @property
    def reward_sum(self) -> Array:
        """The sum of the rewards [S, A]."""
        return self.visits * self.reward_mean


class MDPPosterior(NamedTuple):
    """The posterior distribution over problems."""

    transitions: Array
    """The parameters of Dirichlet distributions over next states [S, A, S]."""
    reward_mean: Array
    """The means of normal distributions over the mean reward [S, A]."""
    reward_precision: Array
    """The inverse variances of these normal distributions [S, A]."""

    @property
    def mean_transitions(self) -> Array:
        """The expected probabilities of next states [S, A, S]."""
        return self.transitions / self.transitions.sum(axis=-1, keepdims=True)


def _require_positive(agent: Any, *names: str) -> None:
    for name in names:
        value = getattr(agent, name)
        require(0 < value < math.inf, f"{name} must be positive and finite, got {value}")


def _require_finite(agent: Any, *names: str) -> None:
    for name in names:
        value = getattr(agent, name)
        require(math.isfinite(value), f"{name} must be finite, got {value}")


def _require_probability(epsilon: float) -> None:
    require(0 <= epsilon <= 1, f"epsilon must be in [0, 1], got {epsilon}")


@dataclass(frozen=True, kw_only=True)
class _Counting:
    """The part of agents that count transitions, including the last of an episode (unlike TabulaRL)."""

    @property
    def epsilon(self) -> float:
        """The probability of a uniformly random action, which is 0."""
        return 0.0

    def init(self, shape: Shape) -> Counts:
        """Return empty counts."""
        s, a, _ = shape
        return Counts(jnp.zeros((s, a, s)), jnp.zeros((s, a)))

    def update(self, shape: Shape, memory: Counts, trajectory: Trajectory) -> Counts:
        """Return the counts with one more episode."""
        del shape
        s, a = trajectory.states, trajectory.actions
        transitions = memory.transitions.at[s, a, trajectory.next_states].add(1.0)
        visits = jnp.maximum(transitions.sum(axis=-1), 1.0)
        surprise = trajectory.rewards - memory.reward_mean[s, a]
        return Counts(transitions, memory.reward_mean.at[s, a].add(surprise / visits[s, a]))


@dataclass(frozen=True, kw_only=True)
class _Believing(_Counting):
    """The part of agents with a conjugate posterior: Dirichlet over next states, normal over mean rewards."""

    prior_transitions: float = 1.0
    """Dirichlet parameter of every next state before any data."""
    prior_reward: float = 0.0
    """Mean reward expected before any data."""
    prior_precision: float = 1.0
    """Inverse variance of that expectation."""
    noise_precision: float = 1.0
    """Inverse variance of a reward around its mean, taken as known."""

    def __post_init__(self):
        _require_positive(self, "prior_transitions", "prior_precision", "noise_precision")
        _require_finite(self, "prior_reward")

    def posterior(self, counts: Counts) -> MDPPosterior:
        """Return the posterior that the prior and these counts give."""
        precision = self.prior_precision + self.noise_precision * counts.visits
        total = self.prior_precision * self.prior_reward + self.noise_precision * counts.reward_sum
        return MDPPosterior(self.prior_transitions + counts.transitions, total / precision, precision)


@dataclass(frozen=True, kw_only=True)
class PSRL(_Believing):
    """Posterior sampling: draw a problem from the posterior, be optimal in it for an episode (Osband 2013)."""

    def plan(self, key: Array, shape: Shape, memory: Counts, episode: Array) -> Array:
        """Return the values of a problem that is drawn from the posterior."""
        del episode
        transition_key, reward_key = jax.random.split(key)
        posterior = self.posterior(memory)
        transitions = jax.random.dirichlet(transition_key, posterior.transitions)
        noise = jax.random.normal(reward_key, posterior.reward_mean.shape)
        rewards = posterior.reward_mean + noise / jnp.sqrt(posterior.reward_precision)
        return plan(transitions, rewards, shape)


@dataclass(frozen=True, kw_only=True)
class UCRL2(_Believing):
    """Optimism over all problems in a confidence set (Jaksch 2010), for a finite horizon.

    There is a new set every episode. Widths are sqrt(c log(2SA(t+1)/delta) / n) for mean rewards and, in the L1
    norm, sqrt(c S log(2SA(t+1)/delta) / n) for transitions, with the number t of the episode and n of data.
    Jaksch's constants c are 3.5 and 14, with t counting steps, no S in the second logarithm, and a new set only
    once some n has doubled.
    """

    prior_transitions: float = 1e-5
    """Dirichlet parameter of every next state before any data: next to nothing."""
    prior_precision: float = 1e-4
    """Inverse variance of the mean reward before any data: next to nothing."""
    delta: float = 0.05
    """A bound on the probability that the true problem ever lies outside the sets, which is far less in fact."""
    reward_constant: float = 4.0
    """The constant c of the rewards."""
    transition_constant: float = 4.0
    """The constant c of the transitions."""
    max_reward: float = 1.0
    """The largest possible mean reward, which must be right; TabulaRL does not use it."""

    def __post_init__(self):
        super().__post_init__()
        _require_positive(self, "reward_constant", "transition_constant")
        _require_finite(self, "max_reward")
        require(0 < self.delta < 1, f"delta must be in (0, 1), got {self.delta}")

    def widths(self, shape: Shape, counts: Counts, episode: Array) -> tuple[Array, Array]:
        """Return the half widths of the confidence set [S, A] for mean rewards and, in L1, for transitions."""
        s, a, _ = shape
        log = jnp.log(2.0 * s * a * (episode + 1) / self.delta)
        data = jnp.maximum(counts.visits, 1.0)
        rewards = jnp.sqrt(self.reward_constant * log / data)
        return rewards, jnp.sqrt(self.transition_constant * s * log / data)

    def plan(self, key: Array, shape: Shape, memory: Counts, episode: Array) -> Array:
        """Return the values of the best problem in the confidence set."""
        del key
        posterior = self.posterior(memory)
        reward_width, transition_width = self.widths(shape, memory, episode)
        rewards = jnp.minimum(posterior.reward_mean + reward_width, self.max_reward)

        def backup(values: Array, _: None) -> Array:
            return rewards + optimistic_transitions(posterior.mean_transitions, transition_width, values) @ values

        return backward(backup, shape)


def optimistic_transitions(estimate: Array, width: Array, values: Array) -> Array:
    """Return the distributions within L1 distance `width` [...] of `estimate` [..., S] of largest expected value.

    Half of the width is added to the best next state, and as much is taken away from the worst ones.
    """
    order = jnp.argsort(values)
    best = order[-1]
    missing = 1.0 - estimate[..., best]
    worse = estimate[..., order[:-1]]
    before = jnp.cumsum(worse, axis=-1) - worse
    taken = jnp.clip(jnp.minimum(width / 2, missing)[..., None] - before, 0.0, worse)
    left = worse - taken
    moved = jnp.concatenate([left, 1.0 - left.sum(axis=-1, keepdims=True)], axis=-1)[..., jnp.argsort(order)]
    # Where the best state is certain there must be no rounding error: ties between actions must stay ties.
    certain = (jnp.arange(estimate.shape[-1]) == best).astype(estimate.dtype)
    return jnp.where((width / 2 >= missing)[..., None], jnp.broadcast_to(certain, estimate.shape), moved)


@dataclass(frozen=True, kw_only=True)
class UCBVI(_Believing):
    """Value iteration with a bonus for what was seen seldom (Azar 2017), with the bonus of TabulaRL.

    It is scale * sqrt(2 log(2 + t) / n), t the number of the episode: once for the reward, and once for every
    later step that the next state decides about. The prior counts as data.
    """

    scale: float = 1.0
    """Factor of the bonus."""

    def __post_init__(self):
        super().__post_init__()
        require(0 <= self.scale < math.inf, f"scale must be finite and not negative, got {self.scale}")

    def plan(self, key: Array, shape: Shape, memory: Counts, episode: Array) -> Array:
        """Return the values of the expected problem plus the bonus."""
        del key
        posterior = self.posterior(memory)
        log = 2 * jnp.log(2.0 + episode)
        rewards = posterior.reward_mean + self.scale * jnp.sqrt(log / posterior.reward_precision)
        bonus = self.scale * jnp.sqrt(log / posterior.transitions.sum(axis=-1))
        transitions = posterior.mean_transitions

        def backup(values: Array, later: Array) -> Array:
            return rewards + transitions @ values + later * bonus

        return backward(backup, shape, jnp.arange(shape.horizon - 1, -1, -1))


@dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(_Believing):
    """Optimal in the expected problem, but for random actions; what TabulaRL calls epsilon-greedy."""

    prior_transitions: float = 1e-4
    """Dirichlet parameter of every next state before any data: next to nothing."""
    prior_precision: float = 1e-4
    """Inverse variance of the mean reward before any data: next to nothing."""
    epsilon: float = 0.1  # pyright: ignore[reportIncompatibleMethodOverride]
    """Probability of a uniformly random action."""

    def __post_init__(self):
        super().__post_init__()
        _require_probability(self.epsilon)

    def plan(self, key: Array, shape: Shape, memory: Counts, episode: Array) -> Array:
        """Return the values of the expected problem."""
        del key, episode
        posterior = self.posterior(memory)
        return plan(posterior.mean_transitions, posterior.reward_mean, shape)


@dataclass(frozen=True, kw_only=True)
class RLSVI(_Counting):
    """Randomised least-squares value iteration (Osband 2016): the linear ancestor of bootstrapped DQN.

    From the last step back, every action's value is fitted to reward plus next value by regularised least squares,
    and then perturbed as Bayesian regression would. Features are one for every state and action, and all data
    serve at every step, as the problem is the same; for this regression counts are all that is needed.
    """

    prior_precision: float = 1.0
    """The inverse variance lambda of a value before any data; our choice is that of rewards elsewhere."""
    noise_precision: float = 1.0
    """Inverse variance of reward plus next value around their mean; our choice is that of rewards elsewhere."""
    perturbation: float = 1.0
    """Factor of the noise; at 0 this is least-squares value iteration."""

    def __post_init__(self):
        _require_positive(self, "prior_precision", "noise_precision")
        require(
            0 <= self.perturbation < math.inf,
            f"perturbation must be finite and not negative, got {self.perturbation}",
        )

    def plan(self, key: Array, shape: Shape, memory: Counts, episode: Array) -> Array:
        """Return values that are drawn step by step from their posteriors."""
        del episode
        precision = self.prior_precision + self.noise_precision * memory.visits
        noise = jax.random.normal(key, (shape.horizon, *precision.shape))

        def backup(values: Array, noise: Array) -> Array:
            total = memory.reward_sum + memory.transitions @ values
            return self.noise_precision * total / precision + self.perturbation * noise / jnp.sqrt(precision)

        return backward(backup, shape, noise)


@dataclass(frozen=True, kw_only=True)
class QLearning:
    """Q-learning, with a value for every step of the episode."""

    epsilon: float = 0.1
    """Probability of a uniformly random action; the usual one of Sutton and Barto's examples."""
    learning_rate: float = 0.1
    """Share of the error by which a value moves; the usual one of Sutton and Barto's examples."""
    initial_reward: float = 0.0
    """Values begin at this for every step that is left; at the largest mean reward, or more, it is optimistic."""

    def __post_init__(self):
        _require_probability(self.epsilon)
        require(0 < self.learning_rate <= 1, f"learning_rate must be in (0, 1], got {self.learning_rate}")
        _require_finite(self, "initial_reward")

    def init(self, shape: Shape) -> Array:
        """Return the initial values [H, S, A]."""
        s, a, h = shape
        left = jnp.arange(h, 0, -1.0)[:, None, None]
        return self.initial_reward * jnp.broadcast_to(left, (h, s, a))

    def plan(self, key: Array, shape: Shape, memory: Array, episode: Array) -> Array:
        """Return the learned values."""
        del key, shape, episode
        return memory

    def update(self, shape: Shape, memory: Array, trajectory: Trajectory) -> Array:
        """Return the values after one update per step, as if each were made right after its step."""
        steps = jnp.arange(shape.horizon)
        next_values = jnp.append(memory.max(axis=-1)[steps[1:], trajectory.next_states[:-1]], 0.0)
        at = steps, trajectory.states, trajectory.actions
        error = trajectory.rewards + next_values - memory[at]
        return memory.at[at].add(self.learning_rate * error)


TABULAR_AGENTS: dict[str, TabularAgent] = {
    "psrl": PSRL(),
    "ucrl2": UCRL2(),
    "ucbvi": UCBVI(),
    "rlsvi": RLSVI(),
    "epsilon-greedy": EpsilonGreedy(),
    "q-learning": QLearning(),
    "optimistic-q": QLearning(epsilon=0.0, learning_rate=0.2, initial_reward=1.0),
}
"""The named tabular baselines; docs/stochastic-chain.md says how the rate of `optimistic-q` was chosen."""
