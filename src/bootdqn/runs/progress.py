"""Progress one can watch: a live bar in a terminal, plain lines elsewhere; and a clean way to stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:  # rich takes a while to import, and not every process shows progress
    from rich.progress import TaskID

_SECONDS_BETWEEN_LINES = 5.0
_RECENT_EPISODES = 20
_MOST_LINES = 20
"""The largest number of running trials that a terminal shows."""


class Progress:
    """Shows how far a training is: a bar in a terminal, a line every few seconds elsewhere; a context manager."""

    def __init__(
        self, title: str, *, total: int, unit: str, done: tuple[float, int] = (0, 0), visible: bool = True
    ):
        """Prepare to show a training.

        Args:
            title: what is trained.
            total: how many units there are in all.
            unit: what is counted, such as `episodes`.
            done: units that were done before, and environment steps.
            visible: whether to show anything.
        """
        from rich import progress as rich_progress
        from rich.console import Console

        self._title = title
        self._total = total
        self._unit = unit
        self._visible = visible
        self._console = Console(file=sys.stderr)
        self._done = self._printed = self._begun_with = done
        self._status = ""
        self._recent: list[float] = []
        self._compiled = False
        self._start = self._last_line = time.perf_counter()
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=10),
            rich_progress.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            rich_progress.TextColumn("{task.fields[status]}"),
            console=self._console,
        )
        self._live = visible and self._console.is_terminal

    def __enter__(self) -> Self:
        if self._live:
            self._task = self._bar.add_task(self._title, total=self._total, status="compiling")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bar.stop()
        elif self._visible and self._done > self._printed:
            self._print_line()

    def update(self, done: tuple[float, int], returns: Sequence[float] = ()) -> None:
        """Say how many units and environment steps are done, and which returns episodes had that ended."""
        self._done = done
        self._recent = [*self._recent, *returns][-_RECENT_EPISODES:]
        seconds = max(time.perf_counter() - self._start, 1e-9)
        units, steps = ((now - then) / seconds for now, then in zip(done, self._begun_with, strict=True))
        eta = clock((self._total - done[0]) / units) if units else "-"
        note = f" return {np.median(self._recent):.4g}" if self._recent else ""
        self._status = f"{_rate(steps)} steps/s ETA {eta}{note}"
        if not self._compiled:  # the rate is measured from here, without the time for compiling
            self._compiled, self._start, self._begun_with = True, time.perf_counter(), done
        if self._live:
            self._bar.update(self._task, completed=done[0], status=self._status)
        elif self._visible and time.perf_counter() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._print_line()

    def _print_line(self) -> None:
        self._last_line = time.perf_counter()
        self._printed = self._done
        count = f"{self._done[0]:.0f}/{self._total} {self._unit}"
        print(f"{self._title}  {count}  {self._status}", file=sys.stderr, flush=True)


class SweepProgress:
    """Shows how far a sweep is: a line for the whole and one for every trial that runs; a context manager."""

    def __init__(self, title: str, weights: Mapping[str, float]):
        """A sweep of trials, each weighing as much as it may take."""
        from rich import progress as rich_progress
        from rich.console import Console

        self._title = title
        self._weights = weights
        self._shares: dict[str, float] = {}
        self._finished: set[str] = set()
        self._failed: set[str] = set()
        self._start = self._last_line = time.perf_counter()
        console = Console(file=sys.stderr)
        self._live = console.is_terminal
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=20),
            rich_progress.TextColumn("{task.percentage:>3.0f}% {task.fields[status]}"),
            console=console,
        )
        self._task = self._bar.add_task(title, total=sum(weights.values()), status="")
        self._trial_tasks: dict[str, TaskID] = {}

    def __enter__(self) -> SweepProgress:
        if self._live and self._weights:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._weights:
            self._bar.stop()

    def update(self, trial: str, share: float) -> None:
        """Say which share of a trial is done."""
        if trial not in self._shares:
            visible = len(self._trial_tasks) < _MOST_LINES
            task = self._bar.add_task(f"  {trial}", total=1.0, status="", visible=visible)
            self._trial_tasks[trial] = task
        self._shares[trial] = share
        self._bar.update(self._trial_tasks[trial], completed=share)
        self._show()

    @property
    def num_finished(self) -> int:
        """Trials that have their result."""
        return len(self._finished)

    def running(self) -> dict[str, float]:
        """Which share is done of every trial that runs."""
        return dict(self._shares)

    def eta_seconds(self) -> float | None:
        """How many seconds the rest takes at the present rate; None while nothing is done."""
        done, total = self._done(), sum(self._weights.values())
        return (time.perf_counter() - self._start) * (total - done) / done if done else None

    def _done(self) -> float:
        """The weight of what needs no more work."""
        shares = self._shares | dict.fromkeys(self._finished | self._failed, 1.0)
        return sum(self._weights[name] * share for name, share in shares.items())

    def finish(self, trial: str, *, failed: bool = False) -> None:
        """Count a trial as done, or as failed."""
        self._shares.pop(trial, None)
        if trial in self._trial_tasks:
            self._bar.remove_task(self._trial_tasks.pop(trial))
        (self._failed if failed else self._finished).add(trial)
        self._show(force=True)

    def _show(self, *, force: bool = False) -> None:
        done, total = self._done(), sum(self._weights.values())
        now, left = time.perf_counter(), self.eta_seconds()
        parts = [f"{len(self._finished)}/{len(self._weights)} trials"]
        parts += [f"{len(self._shares)} running"] * bool(self._shares)
        parts += [f"{len(self._failed)} failed"] * bool(self._failed)
        status = f"{', '.join(parts)} ETA {'-' if left is None else clock(left)}"
        self._bar.update(self._task, completed=done, status=status)
        if not self._live and (force or now - self._last_line > _SECONDS_BETWEEN_LINES):
            self._last_line = now
            running = ", ".join(f"{name} {share:.0%}" for name, share in self._shares.items())
            share = done / total if total else 1.0
            print(f"{self._title}  {share:.0%}  {status}  {running}", file=sys.stderr, flush=True)


def _rate(per_second: float) -> str:
    """Whole numbers, or thousands with a digit more."""
    return f"{per_second:.0f}" if per_second < 1000 else f"{per_second / 1000:.1f}k"


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C, and a request to terminate, into one to stop in good order; the second acts as usual.

    Yields:
        A function that says whether to stop.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    previous: dict[int, Any] = {}

    def request(signum: int, frame: object) -> None:
        del frame
        requested.set()
        signal.signal(signum, previous[signum])
        advice = "; press Ctrl-C again to stop at once" if signum == signal.SIGINT else ""
        print(f"\nStopping in good order{advice}.", file=sys.stderr, flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, request)
    try:
        yield requested.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
