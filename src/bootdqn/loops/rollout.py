"""How well policies made from one set of heads do: the vote, the mean, and every head alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.analysis.agreement import Likeness
from bootdqn.core.policies import epsilon_greedy, random_argmax
from bootdqn.envs.vector import Envs
from bootdqn.types import Agent, Belief, Env, Params

_TICKS_AT_ONCE = 256
"""Ticks over which the agreement of heads is summed up together: single ones would cost more than playing."""
_STATES_AT_ONCE = 1024
"""States whose beliefs are computed together: all of a large environment would not fit into memory."""
VOTE, MEAN = -1, -2
"""Policies beside the heads, which are 0 to K - 1."""


def policy_name(policy: int) -> str:
    """The name of a policy, such as `vote` or `head 3`."""
    return {VOTE: "vote", MEAN: "mean"}.get(policy, f"head {policy}")


class Evaluation(NamedTuple):
    """What one policy collected in some episodes."""

    policy: int
    returns: NDArray[np.float64]
    """Returns [episodes]."""
    ended: int
    """How many of these episodes came to their end; others stand as they did when the steps were used up."""
    entropy: float
    """Mean entropy of the heads' vote in nats over the steps of these episodes: how much they disagree."""
    likeness: Likeness
    """How alike the heads were on the observations of these episodes."""


def choose(key: Array, belief: Belief, policy: Array) -> Array:
    """The action of a policy, given a belief about one observation; ties are broken at random."""
    head_values = belief.q[jnp.maximum(policy, 0)]
    scores = jnp.where(policy == VOTE, belief.votes, jnp.where(policy == MEAN, belief.mean, head_values))
    return random_argmax(key, scores)


def make_chooser(agent: Agent) -> Callable[[Params, Array, Any, Any, int, float], tuple[Array, Belief]]:
    """A jitted function (params, keys [S], obs [S, ...], policies [S], tick, epsilon) -> actions, beliefs [S]."""

    def act(
        params: Params, keys: Array, obs: Array, policies: Array, tick: Array, epsilon: Array
    ) -> tuple[Array, Belief]:
        beliefs = jax.vmap(lambda o: agent.belief(params, o))(obs)
        keys = jax.vmap(lambda key: jax.random.fold_in(key, tick))(keys)

        def one(key: Array, belief: Belief, policy: Array) -> Array:
            action = choose(key, belief, policy)
            return epsilon_greedy(jax.random.fold_in(key, 1), action, epsilon, belief.mean.shape[0])

        return jax.vmap(one)(keys, beliefs, policies), beliefs

    return jax.jit(act)


def evaluate(
    envs: Envs,
    chooser: Callable[..., tuple[Array, Belief]],
    params: Params,
    policies: Sequence[int],
    *,
    episodes: int,
    steps: int | None = None,
    epsilon: float = 0.0,
    seed: Sequence[int],
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Evaluation]:
    """Let every slot play by its policy, for some episodes or for some steps.

    Args:
        envs: as many slots as there are policies.
        chooser: from `make_chooser`.
        params: of the heads.
        policies: heads, `VOTE` or `MEAN`; one may occur several times.
        episodes: of every slot, where no steps are given.
        steps: of every slot. An episode counts if it ends within them; if none of a slot does, as far as it got.
        epsilon: probability of a uniformly random action.
        seed: words that everything random here derives from.
        should_stop: end early, with the episodes there are.

    Returns:
        One evaluation for every distinct policy, in their order.
    """
    sequence = np.random.SeedSequence(seed)
    seeds = [int(word) >> 1 for word in sequence.generate_state(len(policies) + 1)]
    keys = jax.random.split(jax.random.key(seeds[-1]), len(policies))
    obs = envs.reset(seeds[:-1])
    numbers = np.asarray(policies, np.int32)
    returns: list[list[float]] = [[] for _ in policies]
    current, entropy, made = np.zeros(len(policies)), np.zeros(len(policies)), np.zeros(len(policies))
    seen: list[tuple[NDArray[np.floating], NDArray[np.bool_]]] = []
    likeness = [Likeness.sum([])] * len(policies)
    tick = 0
    wanted = episodes if steps is None else sys.maxsize
    while (min(map(len, returns)) < episodes if steps is None else tick < steps) and not should_stop():
        actions, beliefs = chooser(params, keys, obs, numbers, tick, epsilon)
        step = envs.step(np.asarray(actions))
        counts = step.valid & (np.array([len(r) for r in returns]) < wanted)
        current += np.where(counts, step.reward, 0)
        entropy += np.where(counts, np.asarray(beliefs.entropy), 0)
        made += counts
        seen.append((np.asarray(beliefs.q), counts))
        if len(seen) == _TICKS_AT_ONCE:
            likeness = _likeness(seen, likeness)
            seen = []
        for slot in np.flatnonzero(counts & (step.terminated | step.truncated)):
            returns[slot].append(float(current[slot]))
            current[slot] = 0
        obs, tick = step.obs, tick + 1
    likeness = _likeness(seen, likeness) if seen else likeness
    found = []
    for policy in dict.fromkeys(policies):
        slots = np.flatnonzero(numbers == policy)
        ended = sum(len(returns[slot]) for slot in slots)
        partly = [] if steps is None else [current[slot] for slot in slots if not returns[slot]]
        of_policy = np.array([*(r for slot in slots for r in returns[slot]), *partly])
        mean_entropy = entropy[slots].sum() / max(made[slots].sum(), 1)
        of_slots = Likeness.sum(likeness[slot] for slot in slots)
        found.append(Evaluation(policy, of_policy, ended, float(mean_entropy), of_slots))
    return found


def _likeness(
    seen: Sequence[tuple[NDArray[np.floating], NDArray[np.bool_]]], so_far: Sequence[Likeness]
) -> list[Likeness]:
    """Add some ticks (values [S, K, A], and which slots count [S]) to the likeness of heads in every slot."""
    q, counts = (np.stack(parts, axis=1) for parts in zip(*seen, strict=True))
    new = [Likeness.of(values[counted]) for values, counted in zip(q, counts, strict=True)]
    return [Likeness.sum(pair) for pair in zip(so_far, new, strict=True)]


def make_player(env: Env, agent: Agent) -> Callable[[Params, Array, Array], tuple[Array, Array]]:
    """A jitted function (params, keys [P, E], policies [P]) -> returns and mean entropies of the vote [P, E]."""

    def play(params: Params, keys: Array, policies: Array) -> tuple[Array, Array]:

        def play_episode(key: Array, policy: Array) -> tuple[Array, Array]:
            reset_key, step_key = jax.random.split(key)

            def step(carry, key: Array):
                env_state, obs = carry
                act_key, env_key = jax.random.split(key)
                belief = agent.belief(params, obs)
                env_state, out = env.step(env_key, env_state, choose(act_key, belief, policy))
                return (env_state, out.obs), (out.reward, belief.entropy)

            keys = jax.random.split(step_key, env.horizon)
            rewards, entropy = jax.lax.scan(step, env.reset(reset_key), keys)[1]
            return rewards.sum(), entropy.mean()

        return jax.vmap(jax.vmap(play_episode, (0, None)))(keys, policies)

    return jax.jit(play)


def make_surveyor(agent: Agent) -> Callable[[Params, Array], Belief]:
    """A jitted function (params, states [S]) -> beliefs [S] about them, some at a time."""

    def survey(params: Params, states: Array) -> Belief:
        return jax.lax.map(lambda obs: agent.belief(params, obs), states, batch_size=_STATES_AT_ONCE)

    return jax.jit(survey)
