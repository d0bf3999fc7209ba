"""Exploration X-ray: where training has been, which head got there first, and where heads still disagree.

Read from what a run left on disk. A run on states (a chain, DeepSea) is seen state by state; any other, and one
that is still going on, episode by episode.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.envs.catalog import make_env
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.envs.host import is_compiled
from bootdqn.errors import UserError
from bootdqn.runs.directory import read_json, read_table

NO_HEAD = -1
"""Where no head was committed."""


class Record(NamedTuple):
    """An episode that collected more than any before it."""

    episode: int
    """From 1."""
    head: int
    episode_return: float


class Dash(NamedTuple):
    """An episode that went where none had been."""

    episode: int
    head: int
    states: int
    """How many were new."""


@dataclass(frozen=True)
class States:
    """What is known of every state [S]."""

    visits: NDArray[np.int64]
    """Training steps that began there."""
    first_episode: NDArray[np.int64]
    """In which it was first visited, from 1; 0 for never."""
    first_head: NDArray[np.int64]
    """Which was committed then, or `NO_HEAD`."""
    entropy: NDArray[np.float64]
    """Of the heads' vote there, at the end of training, in nats."""
    spread: NDArray[np.float64]
    """Standard deviation of Q over heads there, mean over actions, at the end of training."""
    reachable: NDArray[np.bool_]
    """Whether an agent can get there."""
    size: int | None
    """Rows and columns of a DeepSea; None for states in a row."""

    @property
    def dashes(self) -> list[Dash]:
        """All episodes that found new states, in order."""
        seen = self.visits > 0
        found = zip(self.first_episode[seen].tolist(), self.first_head[seen].tolist(), strict=True)
        return [Dash(*where, states) for where, states in sorted(Counter(found).items())]

    def name(self, state: int) -> str:
        """Of a state, for people."""
        if self.size is None:
            return f"state {state}"
        return f"row {state // self.size}, column {state % self.size}"


@dataclass(frozen=True)
class Xray:
    """What one training did to explore."""

    title: str
    num_heads: int
    returns: NDArray[np.float64]
    """Of every training episode [E]."""
    heads: NDArray[np.int64]
    """Committed in every episode [E], or `NO_HEAD`."""
    lengths: NDArray[np.int64]
    """Steps of every episode [E]."""
    spread: NDArray[np.float64]
    """Standard deviation of Q over heads while learning [E]; NaN where there was no learning."""
    states: States | None

    @property
    def committed(self) -> bool:
        """Whether every episode had its head."""
        return bool((self.heads != NO_HEAD).all())

    @cached_property
    def records(self) -> list[Record]:
        """Every episode that collected more than any before it, the first episode included."""
        best = np.maximum.accumulate(self.returns)
        new = np.flatnonzero(np.diff(best, prepend=-np.inf) > 0)
        return [Record(int(i) + 1, int(self.heads[i]), float(self.returns[i])) for i in new]

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of all training steps, those that each head made [K]; zeros where heads did not act alone."""
        steps = np.zeros(self.num_heads)
        acted = self.heads != NO_HEAD
        np.add.at(steps, self.heads[acted], self.lengths[acted])
        return steps / max(self.lengths.sum(), 1)

    @property
    def findings(self) -> list[str]:
        """What there is to say, in sentences."""
        return [*self._found_where(), *self._found_return(), *self._found_heads()]

    def _found_where(self) -> list[str]:
        if self.states is None:
            return []
        where, dashes = self.states, self.states.dashes
        seen, reachable = int((where.visits > 0).sum()), int(where.reachable.sum())
        found = [
            f"Training has been in {seen} of {reachable} states that can be reached; the last new one came in "
            f"episode {dashes[-1].episode}."
        ]
        if len(dashes) > 1:  # to the first episode, everything is new
            longest = max(dashes[1:], key=lambda dash: dash.states)
            found.append(
                f"After the first episode, the longest dash into the unknown was episode {longest.episode}"
                f"{self._by(longest.head)}: {longest.states} new state{'s' * (longest.states > 1)} at once."
            )
        if self.committed and self.num_heads > 1:
            finders: Counter[int] = Counter()
            for dash in dashes:
                finders[dash.head] += dash.states
            best, states = finders.most_common(1)[0]
            found.append(
                f"{len(finders)} of {self.num_heads} heads were the first in some state, head {best} in most: "
                f"{states}."
            )
        return found

    def _found_return(self) -> list[str]:
        last = self.records[-1]
        again = int((self.returns >= last.episode_return).sum())
        late = self.returns[-min(100, len(self.returns)) :]
        return [
            f"The best return, {last.episode_return:.4g}, was first collected in episode {last.episode}"
            f"{self._by(last.head)}, and in {again} of {len(self.returns)} episodes in all; the last {len(late)} "
            f"collected {late.mean():.4g} on average."
        ]

    def _found_heads(self) -> list[str]:
        if self.num_heads == 1:
            return ["There is one head, so that nothing can disagree."]
        found = []
        if self.committed:
            shares = self.shares
            found.append(f"Heads acted in {shares.min():.1%} to {shares.max():.1%} of all steps.")
        if self.states is not None:
            divided = np.where(self.states.visits > 0, self.states.entropy, -1)
            where = int(divided.argmax())
            if divided[where] > 0.01:
                share = float((divided[self.states.visits > 0] > 0.01).mean())
                found.append(
                    f"At the end heads disagreed about the best action in {share:.0%} of the states visited, most "
                    f"in {self.states.name(where)} (vote entropy {divided[where]:.2f} nats)."
                )
            else:
                found.append("At the end all heads agreed about the best action in every state visited.")
        learned = self.spread[np.isfinite(self.spread)]
        if len(learned):
            tenth = max(1, len(learned) // 10)
            found.append(
                f"The standard deviation of Q over heads, in what they learned from, went from "
                f"{learned[:tenth].mean():.3g} to {learned[-tenth:].mean():.3g}."
            )
        return found

    def _by(self, head: int) -> str:
        return "" if head == NO_HEAD or self.num_heads == 1 else f", by head {head}"


def read_xray(path: Path, seed: int | None = None) -> Xray | None:
    """The X-ray of a run; None where it has no episodes or no heads.

    Args:
        path: the run directory.
        seed: of a run with several; by default the first.
    """
    config = read_json(path / "config.json")
    try:
        num_heads, seed = int(config["agent"]["num_heads"]), int(config["seed"] if seed is None else seed)
        env, agent = str(config["env"] or "an environment without a name"), str(config["agent_name"])
        per_state = "episodes" in config
    except (KeyError, TypeError, ValueError):
        return None
    metrics = path / "metrics.csv"
    rows = [
        row
        for row in (read_table(metrics) if metrics.exists() else ())
        if not per_state or row["seed"] == str(seed)
    ]
    if not rows:
        return None
    try:
        horizon = make_env(env).horizon if per_state else 0
        return Xray(
            title=f"{agent} on {env}, seed {seed}",
            num_heads=num_heads,
            returns=np.array([float(row["return"]) for row in rows]),
            heads=np.array([int(row["head"] or NO_HEAD) for row in rows]),
            lengths=np.array([horizon or int(row["length"]) for row in rows]),
            spread=np.array([float(row["q_spread"] or "nan") for row in rows]),
            states=_read_states(path / "exploration.csv", env, seed) if per_state else None,
        )
    except (KeyError, ValueError, IndexError) as error:
        raise UserError(f"{path} holds tables that are damaged: {error}") from None


def _read_states(path: Path, env: str, seed: int) -> States | None:
    if not path.exists() or not is_compiled(env):
        return None
    rows = [row for row in read_table(path) if row["seed"] == str(seed)]
    if not any(int(row["visits"]) for row in rows):
        return None
    made = make_env(env)
    sea = made if isinstance(made, DeepSea) else None

    def column(name: str, kind: type, empty: Any) -> NDArray[Any]:
        return np.array([kind(row[name]) if row[name] else empty for row in rows])

    return States(
        visits=column("visits", int, 0),
        first_episode=column("first_episode", int, 0),
        first_head=column("first_head", int, NO_HEAD),
        entropy=column("entropy", float, 0.0),
        spread=column("q_spread", float, 0.0),
        reachable=np.ones(len(rows), bool) if sea is None else sea.reachable.ravel(),
        size=None if sea is None else sea.size,
    )
