"""What every training loop offers to a run: episodes as they end, and a state that can be kept and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bootdqn.runs.checkpoint import Checkpoint, ReplayRows
from bootdqn.types import Params


class Episode(NamedTuple):
    """One training episode that has ended; a field is None where the loop has no such thing."""

    seed: int
    """Seed of the training that the episode belongs to."""
    episode: int
    """Number of the episode in its training, from 1."""
    step: int
    """Environment steps of its training at the end of the episode."""
    episode_return: float
    """Undiscounted return of the behaviour policy."""
    length: int
    """Environment steps of the episode."""
    slot: int | None = None
    """Index of the environment copy in which it was played."""
    regret: float | None = None
    """What its actions lost against the optimal ones, in expectation."""
    greedy_return: float | None = None
    """Return of an episode by majority vote that was played after it, without random actions."""
    terminated: int | None = None
    """1 if the episode ended in a terminal state, and 0 if it was truncated."""
    head: int | None = None
    """The head that was followed, where one is followed for a whole episode."""
    epsilon: float | None = None
    """Probability of a random action at the end of the episode."""
    num_updates: int | None = None
    """Updates since the episode that was reported before it."""
    loss: float | None = None
    """Mean loss over these updates; None where there were none, as for the next two."""
    q_mean: float | None = None
    """Mean value of the sampled actions over these updates."""
    q_spread: float | None = None
    """Mean standard deviation over heads of these values."""


METRICS: dict[str, str] = {
    "seed": "seed",
    "episode": "episode",
    "step": "step",
    "slot": "slot",
    "return": "episode_return",
    "regret": "regret",
    "greedy_return": "greedy_return",
    "length": "length",
    "terminated": "terminated",
    "head": "head",
    "epsilon": "epsilon",
    "updates": "num_updates",
    "loss": "loss",
    "q_mean": "q_mean",
    "q_spread": "q_spread",
}
"""Columns of `metrics.csv`, in order, and the field of `Episode` that each holds; a loop writes those it has."""


def metrics_rows(columns: Sequence[str], episodes: Iterable[Episode]) -> list[tuple[Any, ...]]:
    """Rows of `metrics.csv` with these columns, one per episode."""
    fields = [Episode._fields.index(METRICS[column]) for column in columns]
    return [tuple(episode[field] for field in fields) for episode in episodes]


def diverged(what: str, learning_rate: float) -> str:
    """The message for a training whose numbers are no longer finite."""
    return f"training diverged: {what}; a smaller learning rate (now {learning_rate:g}) or the huber loss may help"


class Snapshot(NamedTuple):
    """All that a loop needs to continue with the same bits, in the form that checkpoints hold."""

    info: dict[str, Any]
    """Numbers and texts, as JSON holds them."""
    arrays: dict[str, np.ndarray]
    """Arrays by name, without those of the replays."""
    replays: list[ReplayRows]
    """The replays, of which a checkpoint writes only what is new."""


class Loop(Protocol):
    """A training that can be advanced, kept and restored.

    Its position counts what the loop counts (chunks of episodes, or environment steps). Where a run stops to
    evaluate or to save does not change what is learned, except that `restart` begins new episodes.
    """

    columns: tuple[str, ...]
    """Columns of `metrics.csv` that its episodes have."""
    unit: str
    """What the progress of a run is counted in: `episodes` or `steps`."""
    end: int
    """The position at which training is complete."""
    checkpoint_every: int
    """How far the position moves from one checkpoint to the next."""
    tables: Mapping[str, tuple[str, ...]]
    """Columns of further tables that the loop fills, by file name."""

    @property
    def position(self) -> int:
        """How far training has got, in what the loop counts."""
        ...

    @property
    def progress(self) -> tuple[float, int]:
        """How many units are done, and how many environment steps that is over all seeds."""
        ...

    def memory_bytes(self) -> int:
        """Bytes that parameters, optimizer and replay occupy."""
        ...

    def begin(self) -> None:
        """Make initial parameters and an empty replay, and start episodes."""
        ...

    def advance(self, to: int, should_stop: Callable[[], bool]) -> Iterator[Sequence[Episode]]:
        """Train up to a position, or until told to stop, and yield the episodes that end on the way."""
        ...

    def new_rows(self) -> Mapping[str, list[tuple[Any, ...]]]:
        """Rows of the further tables since they were last asked for."""
        ...

    def settle(self) -> None:
        """Finish updates that are under way, so that parameters and a snapshot are those of this position."""
        ...

    def restart(self) -> None:
        """Begin new episodes in environments whose state no snapshot can hold."""
        ...

    def params(self) -> dict[int, Params]:
        """Online parameters per seed, as numpy arrays; none for agents without a network."""
        ...

    def snapshot(self) -> Snapshot:
        """The state of the training."""
        ...

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from where a snapshot was taken; takes the place of `begin`."""
        ...

    def require_finite(self) -> None:
        """Raise `UserError` if parameters are no longer finite."""
        ...

    def close(self) -> None:
        """Release environments and processes."""
        ...
