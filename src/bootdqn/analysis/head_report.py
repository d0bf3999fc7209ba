"""Head report cards, made from an evaluation of a run or from all states of a compiled environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bootdqn.analysis.agreement import Likeness, PolicyReturns, report_card
from bootdqn.core.config import AgentConfig
from bootdqn.loops.compiled import Exploration
from bootdqn.loops.rollout import MEAN, VOTE, Evaluation, make_player, make_surveyor, policy_name
from bootdqn.types import Agent, Env, Params

EXPLORATION_COLUMNS = ("seed", "state", "visits", "first_episode", "first_head", "entropy", "q_spread")
"""The columns of `exploration.csv`."""
_EPISODES_PER_POLICY = 20
"""Number of episodes from which the returns of each policy are estimated on a compiled environment."""


def data_share(policy: int, head_steps: Sequence[int]) -> float | None:
    """The share of the training data that a head collected; None if the policy is not a head that acts alone."""
    if policy < 0 or not head_steps:
        return None
    return round(head_steps[policy] / max(sum(head_steps), 1), 6)


def card_of(found: Sequence[Evaluation], head_steps: Sequence[int] = ()) -> dict[str, Any]:
    """The report card of an evaluation.

    Args:
        found: the evaluations of all policies.
        head_steps: the training steps of each head [K], if heads act alone in training.
    """
    likeness = Likeness.sum(e.likeness for e in found)
    policies = [
        PolicyReturns(policy_name(e.policy), e.returns, e.entropy, data_share(e.policy, head_steps)) for e in found
    ]
    return report_card(policies, likeness, f"{likeness.observations:,} observations of the episodes played")


class Trained(NamedTuple):
    """The results of training one seed on a compiled environment."""

    params: Params
    heads: NDArray[np.int32]
    """The head that was followed in every episode [E]."""
    exploration: Exploration


def survey_heads(
    env: Env, agent: Agent, config: AgentConfig, trained: Mapping[int, Trained]
) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    """Evaluate all policies, and the heads' beliefs in every state.

    Args:
        env: the environment.
        agent: the agent.
        config: the configuration of the agent.
        trained: the results of training, by seed.

    Returns:
        A report card per seed, and the rows of `exploration.csv`.
    """
    player, surveyor = make_player(env, agent), make_surveyor(agent)
    policies = [VOTE, MEAN, *range(config.num_heads)]
    committed = config.acting == "committed_head"
    cards: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    for seed, (params, heads, where) in trained.items():
        key = jax.random.fold_in(jax.random.key(seed), 1)
        keys = jax.random.split(key, (len(policies), _EPISODES_PER_POLICY))
        returns, entropy = (np.asarray(x) for x in player(params, keys, jnp.asarray(policies)))
        beliefs = jax.tree.map(np.asarray, surveyor(params, jnp.arange(env.encoding.num_states)))
        shares = np.bincount(heads, minlength=config.num_heads) / len(heads)
        played = [
            PolicyReturns(
                policy_name(policy),
                returns[index],
                float(entropy[index].mean()),
                float(shares[policy]) if policy >= 0 and committed else None,
            )
            for index, policy in enumerate(policies)
        ]
        seen = where.visits > 0
        card = report_card(played, Likeness.of(beliefs.q[seen]), f"the {seen.sum()} states visited")
        cards.append({"seed": seed, **card})
        rows += [
            (
                *(seed, state, where.visits[state], where.first_episode[state] if visited else ""),
                where.first_head[state] if visited and committed else "",
                *(f"{beliefs.entropy[state] + 0.0:.6g}", f"{beliefs.std[state].mean():.6g}"),
            )
            for state, visited in enumerate(seen)
        ]
    return cards, rows
