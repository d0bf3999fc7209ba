"""What is known about runs and experiments, as plain values for the report page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.runs.records import PER_SEED

LATE_EPISODES = 100
"""The late return of a seed is the mean return of this many last training episodes."""
LARGEST = 1e30
"""Larger numbers in a file count as damage."""


class SeedCurve(NamedTuple):
    """The learning curve of one seed of a run."""

    seed: int
    x: NDArray[np.float64]
    """When each episode ended [E], counted in episodes or in steps, ascending."""
    returns: NDArray[np.float64]
    """The return of each episode [E]."""
    done: float
    """How far training has got, in the unit of x."""


class PolicyScore(NamedTuple):
    """The returns of one policy in an evaluation: the vote, the mean, or a single head."""

    name: str
    episodes: float | None
    mean: float | None
    least: float | None
    largest: float | None
    share: float | None
    """Share of the training data that this head collected."""


class ReportCard(NamedTuple):
    """A head report card: how good every head is, and how similar the heads are."""

    title: str
    policies: list[PolicyScore]
    observations: str = ""
    """A description of the observations that similarity was measured on; empty if it was not measured."""
    correlation: Sequence[Sequence[float | None]] = ()
    """Correlation of the heads' preferences among actions [K, K]."""
    agreement: float | None = None
    """Share of observations for which two heads have the same greedy action."""
    effective_heads: float | None = None
    warning: str = ""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The contents of one run directory."""

    name: str
    path: Path
    config: dict[str, Any]
    """The contents of `config.json`."""
    loop: str
    """The training loop, as of `bootdqn.runs.records.loop_of`; empty if it is unknown."""
    record: dict[str, Any]
    """The contents of `run.json`."""
    protocol: dict[str, Any]
    curves: list[SeedCurve]
    """The learning curve of every seed."""
    evaluated: list[tuple[float, PolicyScore]]
    """The step and the score of every evaluation."""
    cards: list[ReportCard]
    last_change: datetime | None
    """When the table of episodes was last written to."""
    notes: list[str]
    """Descriptions of all that could not be read."""

    @property
    def env(self) -> str:
        """The environment's name."""
        return text(self.config.get("env")) or "an environment without a name"

    @property
    def agent_name(self) -> str:
        """The name of the agent, such as `boot`."""
        return text(self.config.get("agent_name")) or "unknown"

    @property
    def agent(self) -> dict[str, Any]:
        """The agent's configuration."""
        return _mapping(self.config.get("agent"))

    @property
    def num_heads(self) -> float | None:
        """The number of heads; None for agents without heads."""
        return number(self.agent.get("num_heads"))

    @property
    def unit(self) -> str:
        """The unit in which the length of the run is counted, episodes or steps."""
        return "episodes" if self.loop in PER_SEED else "steps"

    @property
    def planned(self) -> float | None:
        """The planned length of the run per seed, in `unit`."""
        return number(self.config.get(self.unit))

    @property
    def done(self) -> float:
        """How far the slowest seed has got, in `unit`."""
        return min((curve.done for curve in self.curves), default=0.0)

    @property
    def late_return(self) -> float | None:
        """Mean over seeds of the mean return of the last `LATE_EPISODES` episodes."""
        means = [float(curve.returns[-LATE_EPISODES:].mean()) for curve in self.curves]
        return float(np.mean(means)) if means else None

    @property
    def best_evaluation(self) -> float | None:
        """The highest mean return of the vote in any evaluation."""
        means = [policy.mean for _, policy in self.evaluated if policy.name == "vote"]
        known = [mean for mean in (*means, number(self.record.get("best_return"))) if mean is not None]
        return max(known, default=None)

    @property
    def learned(self) -> tuple[float | None, int, int] | None:
        """Median of the episodes to learn (None for never), number of seeds that learned, and number of seeds."""
        # An agent that never ceases to dither is judged by its greedy evaluations: docs/reference.md.
        dithers = any((number(self.agent.get(name)) or 0) > 0 for name in ("epsilon_end", "epsilon"))
        measures = ("greedy_episodes_to_learn", "episodes_to_learn")[0 if dithers else 1 :]
        times = next((found for name in measures if (found := _mapping(self.record.get(name)))), None)
        if times is None:
            return None
        known = [value for time in times.values() if (value := number(time)) is not None]
        # A seed that did not learn counts as later than all others.
        median = float(np.median([*known, *[np.inf] * (len(times) - len(known))]))
        return (median if np.isfinite(median) else None), len(known), len(times)

    @property
    def started(self) -> datetime | None:
        """When the run started."""
        return _time(self.record.get("started"))

    @property
    def seconds(self) -> float | None:
        """Duration of the run up to its end, or up to its last episode if it has not ended."""
        end = _time(self.record.get("finished")) or self.last_change
        return None if self.started is None or end is None else max((end - self.started).total_seconds(), 0.0)


@dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """The contents of the directory of one experiment."""

    name: str
    path: Path
    record: dict[str, Any]
    """The contents of `sweep.json`."""
    summary: str
    """The summary with its tables, in Markdown."""
    notes: list[str]
    """Descriptions of all that could not be read."""

    @property
    def experiment(self) -> str:
        """The name of the experiment, such as `chain-scaling`."""
        return text(self.record.get("experiment")) or self.path.name


def number(value: Any) -> float | None:
    """A value from a JSON file if it is a usable number, otherwise None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < LARGEST else None


def text(value: Any) -> str:
    """A value from a JSON file as text; empty for null."""
    return "" if value is None else str(value)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text(value))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
