"""Head report cards of runs: of an evaluation in slots, and of a training on states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bootdqn.agent import AgentConfig
from bootdqn.heads import Likeness, PolicyReturns, report_card
from bootdqn.loops.compiled import Exploration
from bootdqn.loops.evaluate import MEAN, VOTE, Evaluation, make_player, make_surveyor, policy_name
from bootdqn.types import Agent, Env, Params

EXPLORATION_COLUMNS = ("seed", "state", "visits", "first_episode", "first_head", "entropy", "q_spread")
"""Of `exploration.csv`."""
_EPISODES_A_POLICY = 20
"""That the card of a training on states is made from."""


def data_share(policy: int, head_steps: Sequence[int]) -> float | None:
    """Which share of the data a head collected; None for what is no head, or where heads do not act alone."""
    if policy < 0 or not head_steps:
        return None
    return round(head_steps[policy] / max(sum(head_steps), 1), 6)


def card_of(found: Sequence[Evaluation], head_steps: Sequence[int] = ()) -> dict[str, Any]:
    """The card of an evaluation; `head_steps` are those that each head made in training, where they act alone."""
    likeness = Likeness.sum(e.likeness for e in found)
    policies = [
        PolicyReturns(policy_name(e.policy), e.returns, e.entropy, data_share(e.policy, head_steps)) for e in found
    ]
    return report_card(policies, likeness, f"{likeness.observations:,} observations of the episodes played")


class Trained(NamedTuple):
    """What a training on states left of one seed."""

    params: Params
    heads: NDArray[np.int32]
    """Committed in every episode [E]."""
    exploration: Exploration


def survey_heads(
    env: Env, agent: Agent, config: AgentConfig, trained: Mapping[int, Trained]
) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    """Let policies play, and ask heads about every state; returns a card a seed, and rows of `exploration.csv`."""
    player, surveyor = make_player(env, agent), make_surveyor(agent)
    policies = [VOTE, MEAN, *range(config.num_heads)]
    committed = config.acting == "committed_head"
    cards: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    for seed, (params, heads, where) in trained.items():
        key = jax.random.fold_in(jax.random.key(seed), 1)
        keys = jax.random.split(key, (len(policies), _EPISODES_A_POLICY))
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
