"""What the page knows of runs and experiments, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LATE_EPISODES = 100
"""Episodes at the end of a training whose mean return is its late return."""
LARGEST = 1e30
"""Numbers beyond it are taken for damage."""


class Training(NamedTuple):
    """The episodes of one seed."""

    seed: int
    x: NDArray[np.float64]
    """When each ended [E], in episodes or in steps, ascending."""
    returns: NDArray[np.float64]
    """Theirs [E]."""
    done: float
    """How far the training got, in the unit of x."""


class Policy(NamedTuple):
    """What a policy made from the heads collected."""

    name: str
    episodes: float | None
    mean: float | None
    least: float | None
    largest: float | None
    share: float | None
    """Of the data that this head gathered."""


class Card(NamedTuple):
    """A head report card: how good every head is, and how far they are copies of each other."""

    title: str
    policies: list[Policy]
    observations: str = ""
    """What the following was measured on, in words; empty where it was not measured."""
    correlation: Sequence[Sequence[float | None]] = ()
    """Of the heads' preferences among actions [K, K]."""
    agreement: float | None = None
    """Share of observations on which two heads have the same favourite."""
    effective_heads: float | None = None
    warning: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run directory."""

    name: str
    path: Path
    config: dict[str, Any]
    record: dict[str, Any]
    """What `run.json` holds."""
    protocol: dict[str, Any]
    trainings: list[Training]
    evaluated: list[tuple[float, Policy]]
    """(step, policy) of every evaluation."""
    cards: list[Card]
    last_change: datetime | None
    """Of the table of episodes."""
    notes: list[str]
    """What could not be read."""

    @property
    def env(self) -> str:
        """The environment's name."""
        return text(self.config.get("env")) or "an environment without a name"

    @property
    def agent_name(self) -> str:
        """The named configuration that the agent started from."""
        return text(self.config.get("agent_name")) or "unknown"

    @property
    def agent(self) -> dict[str, Any]:
        """The agent's configuration."""
        return _mapping(self.config.get("agent"))

    @property
    def num_heads(self) -> float | None:
        """K; None for agents that have no heads."""
        return number(self.agent.get("num_heads"))

    @property
    def unit(self) -> str:
        """What the length of a training is counted in: episodes for compiled environments, or else steps."""
        return "episodes" if "episodes" in self.config else "steps"

    @property
    def planned(self) -> float | None:
        """How long a training was to be."""
        return number(self.config.get(self.unit))

    @property
    def done(self) -> float:
        """How far all trainings got."""
        return min((training.done for training in self.trainings), default=0.0)

    @property
    def late_return(self) -> float | None:
        """Mean over seeds of the mean return of the last `LATE_EPISODES`."""
        means = [float(t.returns[-LATE_EPISODES:].mean()) for t in self.trainings]
        return float(np.mean(means)) if means else None

    @property
    def best_evaluation(self) -> float | None:
        """Highest mean return of the vote."""
        means = [policy.mean for _, policy in self.evaluated if policy.name == "vote"]
        known = [mean for mean in (*means, number(self.record.get("best_return"))) if mean is not None]
        return max(known, default=None)

    @property
    def learned(self) -> tuple[float | None, int, int] | None:
        """Median of the episodes to learn, None where it is never; how many seeds did, and of how many."""
        # An agent that never ceases to dither is judged without that: docs/architecture.md.
        dithers = any((number(self.agent.get(name)) or 0) > 0 for name in ("epsilon_end", "epsilon"))
        measures = ("greedy_episodes_to_learn", "episodes_to_learn")[0 if dithers else 1 :]
        times = next((found for name in measures if (found := _mapping(self.record.get(name)))), None)
        if times is None:
            return None
        known = [value for time in times.values() if (value := number(time)) is not None]
        # A seed that did not learn in time counts as later than all.
        median = float(np.median([*known, *[np.inf] * (len(times) - len(known))]))
        return (median if np.isfinite(median) else None), len(known), len(times)

    @property
    def started(self) -> datetime | None:
        """When it began."""
        return _time(self.record.get("started"))

    @property
    def seconds(self) -> float | None:
        """From its beginning to its end, or to its last sign of life."""
        end = _time(self.record.get("finished")) or self.last_change
        return None if self.started is None or end is None else max((end - self.started).total_seconds(), 0.0)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One directory of a sweep."""

    name: str
    path: Path
    record: dict[str, Any]
    """What `sweep.json` holds."""
    summary: str
    """Its tables, in Markdown."""
    notes: list[str]

    @property
    def experiment(self) -> str:
        """Its name among the experiments."""
        return text(self.record.get("experiment")) or self.path.name


def number(value: Any) -> float | None:
    """A value of a JSON file as a number, if it is one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < LARGEST else None


def text(value: Any) -> str:
    """A value of a JSON file in words; nothing for null."""
    return "" if value is None else str(value)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text(value))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
