"""Progress one can watch: a live bar in a terminal, plain lines elsewhere; and a clean way to stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from rich import progress as rich_progress
from rich.console import Console

from bootdqn.loops.compiled import Chunk

_SECONDS_BETWEEN_LINES = 5.0
_RECENT_EPISODES = 20


class Progress:
    """Shows how far a training is; a context manager fed by `update`."""

    def __init__(self, title: str, *, episodes: int, num_seeds: int, horizon: int, visible: bool = True):
        """A training of `num_seeds` seeds, `episodes` episodes each of `horizon` steps."""
        self._title = title
        self._episodes = episodes
        self._num_seeds = num_seeds
        self._horizon = horizon
        self._visible = visible
        self._console = Console(file=sys.stderr)
        self._done = self._printed = 0
        self._recent: list[float] = []
        self._start = self._last_line = time.perf_counter()
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=10),
            rich_progress.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            rich_progress.TextColumn("{task.fields[status]}"),
            console=self._console,
        )
        self._live = visible and self._console.is_terminal

    def __enter__(self) -> Progress:
        if self._live:
            self._task = self._bar.add_task(self._title, total=self._episodes, status="compiling")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bar.stop()
        elif self._visible and self._done > self._printed:
            self._print_line()

    def start(self) -> None:
        """Begin to measure the rate, now that everything is compiled."""
        self._start = time.perf_counter()

    def update(self, chunk: Chunk) -> None:
        """Count a chunk of episodes."""
        returns = chunk.metrics.episode_return
        self._done += returns.size
        self._recent = (self._recent + np.median(returns, axis=0).tolist())[-_RECENT_EPISODES:]
        if self._live:
            self._bar.update(self._task, completed=self._done / self._num_seeds, status=self._status())
        elif self._visible and time.perf_counter() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._print_line()

    def _status(self) -> str:
        elapsed = time.perf_counter() - self._start
        rate = self._done / elapsed
        minutes, seconds = divmod(round((self._episodes * self._num_seeds - self._done) / rate), 60)
        speed = f"{rate * self._horizon / 1000:.1f}k steps/s"
        return f"{speed} ETA {minutes}:{seconds:02} return {np.median(self._recent):.2g}"

    def _print_line(self) -> None:
        self._last_line = time.perf_counter()
        self._printed = self._done
        count = f"{self._done / self._num_seeds:.0f}/{self._episodes} episodes"
        print(f"{self._title}  {count}  {self._status()}", file=sys.stderr, flush=True)


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a request to stop; the second interrupts as usual.

    Yields:
        A function that says whether to stop.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def request(signum: int, frame: object) -> None:
        del signum, frame
        requested.set()
        signal.signal(signal.SIGINT, previous)
        print("\nStopping in good order; press Ctrl-C again to stop at once.", file=sys.stderr, flush=True)

    previous = signal.signal(signal.SIGINT, request)
    try:
        yield requested.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
