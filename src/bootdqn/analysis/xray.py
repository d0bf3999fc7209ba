"""Exploration X-ray: which states were visited, by which head first, and where the heads still disagree.

It is read from the files of a run. Finished runs on compiled environments (a chain, DeepSea) are shown state by
state, all others episode by episode.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.envs.registry import make_env
from bootdqn.envs.vector import is_compiled
from bootdqn.errors import UserError
from bootdqn.runs.directory import read_json, read_table

NO_HEAD = -1
"""Stands for the head of an episode in which no single head was followed."""


class BestEpisode(NamedTuple):
    """An episode whose return was higher than that of all episodes before it."""

    episode: int
    """Number of the episode, from 1."""
    head: int
    episode_return: float


class Discovery(NamedTuple):
    """An episode that visited states which no episode before it had visited."""

    episode: int
    """Number of the episode, from 1."""
    head: int
    states: int
    """Number of states that were new."""


@dataclass(frozen=True)
class States:
    """What is known about every state; all arrays are [S]."""

    visits: NDArray[np.int64]
    """Number of training steps that started in the state."""
    first_episode: NDArray[np.int64]
    """Number of the episode of the first visit, from 1; 0 for never."""
    first_head: NDArray[np.int64]
    """The head of the episode of the first visit, or `NO_HEAD`."""
    entropy: NDArray[np.float64]
    """Entropy of the heads' vote at the end of training, in nats."""
    spread: NDArray[np.float64]
    """Standard deviation of Q over heads at the end of training, averaged over actions."""
    reachable: NDArray[np.bool_]
    """Whether an agent can reach the state."""
    shape: tuple[int, ...]
    """The shape of the state space: [S] for states in a row, [rows, columns] for a grid."""

    @property
    def is_grid(self) -> bool:
        """Whether the states are the cells of a grid, rather than in a row."""
        return len(self.shape) == 2

    @property
    def discoveries(self) -> list[Discovery]:
        """All episodes that visited new states, in order."""
        seen = self.visits > 0
        found = zip(self.first_episode[seen].tolist(), self.first_head[seen].tolist(), strict=True)
        return [Discovery(*where, states) for where, states in sorted(Counter(found).items())]

    def name(self, state: int) -> str:
        """A readable name of a state."""
        if not self.is_grid:
            return f"state {state}"
        row, column = np.unravel_index(state, self.shape)
        return f"row {row}, column {column}"


@dataclass(frozen=True)
class Xray:
    """How one seed of a run explored."""

    title: str
    num_heads: int
    returns: NDArray[np.float64]
    """Return of every training episode [E]."""
    heads: NDArray[np.int64]
    """The head that was followed in every episode [E], or `NO_HEAD`."""
    lengths: NDArray[np.int64]
    """Number of steps of every episode [E]."""
    spread: NDArray[np.float64]
    """Standard deviation of Q over heads in the updates of every episode [E]; NaN for episodes without updates."""
    states: States | None
    """What is known about every state; None if the run has no such data."""

    @property
    def committed(self) -> bool:
        """Whether a single head was followed in every episode."""
        return bool((self.heads != NO_HEAD).all())

    @cached_property
    def best_episodes(self) -> list[BestEpisode]:
        """All episodes whose return was higher than any before, including the first episode."""
        best = np.maximum.accumulate(self.returns)
        new = np.flatnonzero(np.diff(best, prepend=-np.inf) > 0)
        return [BestEpisode(int(i) + 1, int(self.heads[i]), float(self.returns[i])) for i in new]

    @property
    def shares(self) -> NDArray[np.float64]:
        """Share of the training steps that each head made [K]; 0 if heads did not act alone."""
        steps = np.zeros(self.num_heads)
        acted = self.heads != NO_HEAD
        np.add.at(steps, self.heads[acted], self.lengths[acted])
        return steps / max(self.lengths.sum(), 1)

    @property
    def findings(self) -> list[str]:
        """The main results, as sentences."""
        return [*self._found_where(), *self._found_return(), *self._found_heads()]

    def _found_where(self) -> list[str]:
        if self.states is None:
            return []
        where, discoveries = self.states, self.states.discoveries
        seen, reachable = int((where.visits > 0).sum()), int(where.reachable.sum())
        found = [
            f"Training has visited {seen} of {reachable} reachable states; the last new one was found in episode "
            f"{discoveries[-1].episode}."
        ]
        if len(discoveries) > 1:  # to the first episode, everything is new
            most = max(discoveries[1:], key=lambda discovery: discovery.states)
            found.append(
                f"After the first episode, the most new states at once were discovered in episode {most.episode}"
                f"{self._by(most.head)}: {most.states}."
            )
        if self.committed and self.num_heads > 1:
            finders: Counter[int] = Counter()
            for discovery in discoveries:
                finders[discovery.head] += discovery.states
            best, states = finders.most_common(1)[0]
            found.append(
                f"{len(finders)} of {self.num_heads} heads were the first to visit some state, head {best} the "
                f"most: {states}."
            )
        return found

    def _found_return(self) -> list[str]:
        last = self.best_episodes[-1]
        again = int((self.returns >= last.episode_return).sum())
        late = self.returns[-min(100, len(self.returns)) :]
        return [
            f"The best return, {last.episode_return:.4g}, was first reached in episode {last.episode}"
            f"{self._by(last.head)}, and in {again} of {len(self.returns)} episodes in total; the mean return of "
            f"the last {len(late)} episodes is {late.mean():.4g}."
        ]

    def _found_heads(self) -> list[str]:
        if self.num_heads == 1:
            return ["There is only one head, so there is no disagreement."]
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
                    f"At the end the heads disagreed about the best action in {share:.0%} of the visited states, "
                    f"most in {self.states.name(where)} (vote entropy {divided[where]:.2f} nats)."
                )
            else:
                found.append("At the end all heads agreed about the best action in every visited state.")
        learned = self.spread[np.isfinite(self.spread)]
        if len(learned):
            tenth = max(1, len(learned) // 10)
            found.append(
                f"The standard deviation of Q over heads, on the data of their updates, went from "
                f"{learned[:tenth].mean():.3g} to {learned[-tenth:].mean():.3g}."
            )
        return found

    def _by(self, head: int) -> str:
        return "" if head == NO_HEAD or self.num_heads == 1 else f", by head {head}"


def read_xray(path: Path, seed: int | None = None) -> Xray | None:
    """Read the X-ray of a run; None if it has no episodes or no heads.

    Args:
        path: the run directory.
        seed: the seed to show, by default the first of the run.
    """
    config = read_json(path / "config.json")
    try:
        num_heads, seed = int(config["agent"]["num_heads"]), int(config["seed"] if seed is None else seed)
        env, agent = str(config["env"] or "an environment without a name"), str(config["agent_name"])
    except (KeyError, TypeError, ValueError):
        return None
    metrics = path / "metrics.csv"
    # A table without a column for seeds belongs to the run's only one.
    table = read_table(metrics) if metrics.exists() else []
    rows = [row for row in table if row.get("seed", str(seed)) == str(seed)]
    if not rows:
        return None
    try:
        # Tables of compiled environments did not always have lengths: all episodes last until the horizon.
        lengths = [row["length"] for row in rows] if "length" in rows[0] else [make_env(env).horizon] * len(rows)
        return Xray(
            title=f"{agent} on {env}, seed {seed}",
            num_heads=num_heads,
            returns=np.array([float(row["return"]) for row in rows]),
            heads=np.array([int(row["head"] or NO_HEAD) for row in rows]),
            lengths=np.array([int(length) for length in lengths]),
            spread=np.array([float(row["q_spread"] or "nan") for row in rows]),
            states=_read_states(path / "exploration.csv", env, seed),
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

    def column(name: str, kind: type, empty: Any) -> NDArray[Any]:
        return np.array([kind(row[name]) if row[name] else empty for row in rows])

    return States(
        visits=column("visits", int, 0),
        first_episode=column("first_episode", int, 0),
        first_head=column("first_head", int, NO_HEAD),
        entropy=column("entropy", float, 0.0),
        spread=column("q_spread", float, 0.0),
        reachable=made.reachable.ravel(),
        shape=made.state_shape,
    )
