"""Hands out trials to workers, whatever machines they are on, and runs one trial inside a worker.

`schedule` gives trials to workers, and those of a worker that died to another one. It knows workers only by the
protocol `Workers`: in `local` they are processes of this machine, in `ray` they are actors in a cluster.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple, Protocol

from bootdqn.errors import UserError, require
from bootdqn.experiments.engine.experiment import Context, Outcome, RunTrial, Trial
from bootdqn.loops.workers import MOST_DEATHS

_SECONDS_BETWEEN_REPORTS = 0.5
_SECONDS_TO_WAIT_FOR_EVENTS = 0.2
"""How long the scheduler waits for events before it looks whether it should stop."""


class Ready(NamedTuple):
    """A new worker is ready for its first trial."""


class Alive(NamedTuple):
    """A worker is alive, and has done a share of its trial."""

    share: float
    """The share of the trial that is done, from 0 to 1."""


class Lost(NamedTuple):
    """The message that a worker has died, with what is known of the reason."""

    why: str
    """One line that says what is known about its end."""


Event = Ready | Alive | Outcome | Lost
"""What a worker tells the scheduler; an `Outcome` means that its trial has ended and it is ready for another."""


class Workers(Protocol):
    """Processes that carry out trials; each worker is known by its number."""

    def start(self) -> None:
        """Ask for another worker, which sends `Ready` once it runs."""
        ...

    def give(self, worker: int, trial: Trial) -> None:
        """Let an idle worker carry out a trial."""
        ...

    def events(self, timeout: float) -> Iterator[tuple[int, Event]]:
        """Yield workers and their events, after waiting up to `timeout` seconds for the first one."""
        ...

    def stop(self) -> None:
        """Tell all running trials to stop."""
        ...

    def dismiss(self, worker: int) -> None:
        """End an idle worker."""
        ...

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        ...


def schedule(
    workers: Workers,
    trials: Sequence[Trial],
    num_workers: int,
    should_stop: Callable[[], bool],
    report: Callable[[str, float], None],
) -> Generator[Outcome]:
    """Carry out trials, and yield the outcome of each one once, except for those that were told to stop.

    A trial whose worker dies is given to another worker; after several deaths it has failed.

    Args:
        workers: the workers, none of which is started yet.
        trials: the trials in the order in which to begin them.
        num_workers: the number of workers to start.
        should_stop: whether to begin no other trial and to stop those that run.
        report: takes a trial's name and the share of it that is done.
    """
    waiting = deque(trials)
    running: dict[int, Trial] = {}
    deaths: Counter[str] = Counter()
    failed_starts = 0
    stopping = False

    def hand_out(worker: int) -> None:
        if not waiting:
            workers.dismiss(worker)
            return
        running[worker] = waiting.popleft()
        workers.give(worker, running[worker])
        report(running[worker].name, 0.0)

    try:
        for _ in range(num_workers):
            workers.start()
        while waiting or running:
            if should_stop() and not stopping:
                stopping = True
                waiting.clear()
                workers.stop()
            for worker, event in workers.events(_SECONDS_TO_WAIT_FOR_EVENTS):
                match event:
                    case Ready():
                        failed_starts = 0
                        hand_out(worker)
                    case Alive(share):
                        report(running[worker].name, share)
                    case Outcome():
                        del running[worker]
                        hand_out(worker)  # before the outcome is recorded, which takes a while
                        if not event.is_cut:
                            yield event
                    case Lost(why):
                        trial = running.pop(worker, None)
                        if stopping:
                            continue
                        if trial is None:
                            failed_starts += 1
                            require(failed_starts < MOST_DEATHS, f"workers die before they are ready: {why}")
                        else:
                            deaths[trial.name] += 1
                            if deaths[trial.name] < MOST_DEATHS:
                                waiting.appendleft(trial)
                        if waiting:
                            workers.start()
                        if trial is not None and deaths[trial.name] == MOST_DEATHS:
                            yield Outcome(trial.name, None, f"{MOST_DEATHS} workers died of it: {why}")
    finally:
        workers.close()


def carry_out(
    run: RunTrial,
    trial: Trial,
    out: Path,
    *,
    should_stop: Callable[[], bool],
    report: Callable[[float], None],
    num_threads: int = 1,
) -> Outcome:
    """Run a trial in a thread, where signals do not interrupt it, and return its outcome.

    Args:
        run: the function of the experiment that runs a trial.
        trial: the trial to run.
        out: the directory of the sweep.
        should_stop: whether the trial should end early.
        report: takes the share of the trial that is done, every half second from the calling thread.
        num_threads: the number of threads that the trial may use for its seeds.
    """
    share = 0.0

    def note(done: float) -> None:
        nonlocal share
        share = done

    start = time.perf_counter()
    with ThreadPoolExecutor(num_threads) as pool, ThreadPoolExecutor(1) as thread:
        future = thread.submit(run, trial.config, Context(should_stop, note, pool, out, trial.name))
        while not wait([future], timeout=_SECONDS_BETWEEN_REPORTS).done:
            report(share)
    seconds = time.perf_counter() - start
    error = future.exception()
    if error is None:
        rows = future.result()
        unasked = rows is None and not should_stop()
        return Outcome(trial.name, rows, "it stopped without being told to" if unasked else "", seconds=seconds)
    if isinstance(error, UserError):
        return Outcome(trial.name, None, str(error), seconds=seconds)
    line = traceback.format_exception_only(error)[-1].strip()
    return Outcome(trial.name, None, line, "".join(traceback.format_exception(error)), seconds)
