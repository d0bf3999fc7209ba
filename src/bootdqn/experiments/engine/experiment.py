"""What an experiment consists of, and what the engines that carry out its trials have in common."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

Preset = Literal["smoke", "quick", "paper"]
"""The size of a sweep: seconds to see that it runs, minutes to see a first result, or the paper's settings."""
ResultRow = dict[str, Any]
"""One row of `results.csv` as a trial returns it; all rows of an experiment have the same columns."""
CsvRow = Mapping[str, str]
"""One row of `results.csv` as it is read back."""


class Trial(NamedTuple):
    """One configuration of a sweep."""

    name: str
    """A name that is unique in its sweep and can be used as a file name."""
    config: Any
    """A frozen dataclass of numbers, strings, tuples of these, and dataclasses of the same kind."""


class Cost(NamedTuple):
    """An upper estimate of what a trial needs."""

    core_seconds: float
    """Computing time on one core, in seconds."""
    least_seconds: float
    """Seconds that the trial takes however many cores there are."""
    bytes: int
    """Main memory that the trial needs."""
    disk_bytes: int = 0
    """Disk space that the trial needs."""
    note: str = ""
    """What the estimate is based on, for the announcement of the sweep."""
    device_bytes: int | None = None
    """The part of `bytes` that an accelerator would hold; None if it would hold all of them."""
    threads: int = 1
    """Threads that the trial can keep busy with its seeds, with the same bits however many it gets."""


class Context(NamedTuple):
    """What a running trial is given by its engine."""

    should_stop: Callable[[], bool]
    """Whether the trial should end early."""
    report: Callable[[float], None]
    """Takes the share of the trial that is done, from 0 to 1."""
    pool: ThreadPoolExecutor
    """Threads for the trial's work."""
    out: Path
    """The directory of the sweep."""
    trial: str = ""
    """The name of the trial."""


RunTrial = Callable[[Any, Context], list[ResultRow] | None]
"""A function from a trial's configuration and context to its rows, or to None if it was told to stop."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that reproduces one figure or table."""

    name: str
    """The name of the experiment on the command line."""
    summary: str
    """One line for `bootdqn list`."""
    sweep: Callable[[Preset], list[Trial]]
    """Makes the trials of a preset; it computes nothing."""
    run: RunTrial
    """Carries out one trial."""
    describe: Callable[[Any], ResultRow]
    """Makes the columns that say what was run, from a trial's configuration."""
    cost: Callable[[Any], Cost]
    """Estimates what a trial needs, from its configuration."""
    find: Callable[[Any, Path], list[ResultRow] | None] = lambda config, out: None
    """Returns the rows that another sweep left for a configuration, given the directory of this one, or None."""
    plot: Callable[[list[CsvRow], Path], str]
    """Writes the figure of the rows of `results.csv` to a path without suffix, and returns a summary in Markdown.

    The rows may be those of the first trials only, if the sweep was stopped.
    """


class Outcome(NamedTuple):
    """The result of a trial that has ended."""

    trial: str
    """The name of the trial."""
    rows: list[ResultRow] | None
    """The rows of the trial, or None if it failed or was told to stop."""
    error: str = ""
    """One line that says why the trial failed; empty if it did not."""
    details: str = ""
    """The traceback, unless the failure was a mistake of the user."""
    seconds: float = 0.0
    """How long the trial ran."""

    @property
    def is_cut(self) -> bool:
        """Whether the trial was told to stop before its end."""
        return self.rows is None and not self.error


class Work(NamedTuple):
    """The trials that an engine is to carry out."""

    run: RunTrial
    """The function that carries out one trial; other processes import it by its name."""
    trials: Sequence[Trial]
    """The trials, in the order in which to begin them."""
    costs: Sequence[Cost]
    """The estimated cost of each trial."""
    out: Path
    """The directory of the sweep, which all workers must see under this name."""


class Executor(Protocol):
    """An engine that carries out trials."""

    @property
    def cores(self) -> int:
        """The number of cores that the engine can use in all."""
        ...

    def fit(self, costs: Sequence[Cost]) -> int:
        """Return how many trials of these costs run at once; raise `UserError` if there is no room for one."""
        ...

    def execute(
        self, work: Work, should_stop: Callable[[], bool], report: Callable[[str, float], None]
    ) -> Generator[Outcome]:
        """Carry out all trials and yield the outcome of each one once, in the order in which they end.

        After `should_stop` returns true, trials that were cut short are not yielded.

        Args:
            work: the trials; if there are none, no worker is started.
            should_stop: whether to end early and in good order.
            report: takes a trial's name and the share of it that is done, every now and then.
        """
        ...
