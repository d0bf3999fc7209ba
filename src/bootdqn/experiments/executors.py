"""Carries out trials in worker processes, one trial after the other in each, whatever machine they are on.

`schedule` hands out trials, and gives those of a worker that died to another. What a worker is, `Workers` hides:
here a process of this machine; in `ray_executor` an actor somewhere in a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bootdqn.cluster import MOST_DEATHS, WORKER_BYTES, WORKER_ENVIRONMENT
from bootdqn.errors import UserError, require
from bootdqn.experiments.runner import Context, Cost, Outcome, Run, Trial, Work
from bootdqn.loops.groups import available_cores
from bootdqn.memory import available_memory

_SECONDS_BETWEEN_REPORTS = 0.5
_SECONDS_OF_PATIENCE = 0.2
"""For which the scheduler waits for news, before it looks whether to stop."""


class Idle(NamedTuple):
    """A worker is ready for its first trial."""


class Share(NamedTuple):
    """A worker lives, and this share of its trial is done."""

    share: float


class Lost(NamedTuple):
    """A worker is dead."""

    why: str


Event = Idle | Share | Outcome | Lost
"""With `Outcome` a trial has ended, and its worker is ready for another."""


class Workers(Protocol):
    """Processes that carry out trials; a worker is known by its number."""

    def start(self) -> None:
        """Ask for another worker; it says `Idle` once it is there."""
        ...

    def give(self, worker: int, trial: Trial) -> None:
        """Let an idle worker carry out a trial."""
        ...

    def events(self, timeout: float) -> Iterator[tuple[int, Event]]:
        """What has happened, after waiting for something to happen."""
        ...

    def stop(self) -> None:
        """Tell all trials that run to stop."""
        ...

    def dismiss(self, worker: int) -> None:
        """End a worker."""
        ...

    def close(self) -> None:
        """End all workers, whatever they do."""
        ...


def schedule(
    workers: Workers,
    trials: Sequence[Trial],
    num_workers: int,
    should_stop: Callable[[], bool],
    report: Callable[[str, float], None],
) -> Generator[Outcome]:
    """Carry out trials, yielding each once, as they end; after `should_stop` none that was cut."""
    waiting = deque(trials)
    running: dict[int, Trial] = {}
    deaths: Counter[str] = Counter()
    dead_at_birth = 0
    told = False
    try:
        for _ in range(num_workers):
            workers.start()
        while waiting or running:
            if should_stop() and not told:
                told = True
                waiting.clear()
                workers.stop()
            for worker, event in workers.events(_SECONDS_OF_PATIENCE):
                if isinstance(event, Share):
                    report(running[worker].name, event.share)
                    continue
                trial = running.pop(worker, None)
                outcome = None
                if isinstance(event, Idle):
                    dead_at_birth = 0
                elif isinstance(event, Outcome):
                    outcome = None if event.is_cut else event
                elif isinstance(event, Lost) and not told:
                    dead_at_birth += trial is None
                    require(dead_at_birth < MOST_DEATHS, f"workers die before they are ready: {event.why}")
                    if trial is not None:
                        deaths[trial.name] += 1
                        if deaths[trial.name] < MOST_DEATHS:
                            waiting.appendleft(trial)
                        else:
                            outcome = Outcome(trial.name, None, f"{MOST_DEATHS} workers died of it: {event.why}")
                    if waiting:
                        workers.start()
                if waiting and not isinstance(event, Lost):
                    running[worker] = waiting.popleft()
                    workers.give(worker, running[worker])
                    report(running[worker].name, 0.0)
                elif not isinstance(event, Lost):
                    workers.dismiss(worker)
                if outcome is not None:  # which takes a while to record
                    yield outcome
    finally:
        workers.close()


def carry_out(
    run: Run, trial: Trial, out: Path, stop: threading.Event, num_threads: int = 1
) -> Iterator[Share | Outcome]:
    """Run a trial in a thread, so that signals are none of its business; yield how far it is, then its end.

    Args:
        run: the experiment's.
        trial: what to run.
        out: the sweep's directory.
        stop: whether to give up.
        num_threads: for seeds side by side.
    """
    shares = [0.0]
    start = time.perf_counter()
    with ThreadPoolExecutor(num_threads) as pool, ThreadPoolExecutor(1) as thread:
        context = Context(stop.is_set, lambda share: shares.__setitem__(0, share), pool, out, trial.name)
        future = thread.submit(run, trial.config, context)
        while not wait([future], timeout=_SECONDS_BETWEEN_REPORTS).done:
            yield Share(shares[0])
    seconds = time.perf_counter() - start
    error = future.exception()
    if error is None:
        rows = future.result()
        unasked = rows is None and not stop.is_set()
        yield Outcome(trial.name, rows, "it stopped without being told to" if unasked else "", seconds=seconds)
    elif isinstance(error, UserError):
        yield Outcome(trial.name, None, str(error), seconds=seconds)
    else:
        line = traceback.format_exception_only(error)[-1].strip()
        yield Outcome(trial.name, None, line, "".join(traceback.format_exception(error)), seconds)


class LocalExecutor:
    """Runs trials on this machine, in as many processes as there are cores and memory for."""

    def __init__(self):
        self.cores = available_cores()

    def fit(self, costs: Sequence[Cost]) -> int:
        """How many trials run at once: those that need most must fit."""
        available = available_memory()
        largest = sorted((cost.bytes for cost in costs), reverse=True)[: self.cores]
        if available is None:
            return len(largest)
        needed = [sum(largest[:number]) + number * WORKER_BYTES for number in range(1, len(largest) + 1)]
        require(
            needed[0] < available,
            f"a trial needs {largest[0] / 1e9:.1f} GB, its process {WORKER_BYTES / 1e9:.1f} GB, and "
            f"{available / 1e9:.1f} GB of memory is free",
        )
        return sum(bytes_ < available for bytes_ in needed)

    def execute(
        self, work: Work, should_stop: Callable[[], bool], report: Callable[[str, float], None]
    ) -> Generator[Outcome]:
        """Carry out trials in processes; cores that would idle are for seeds side by side."""
        if work.trials:
            number = self.fit(work.costs)
            num_threads = min(self.cores // number, *(cost.threads for cost in work.costs))
            workers = _Processes(work.run, work.out, num_threads)
            yield from schedule(workers, work.trials, number, should_stop, report)


class _Processes:
    """Workers of this machine: fresh Python processes, each with a pipe to it."""

    def __init__(self, run: Run, out: Path, num_threads: int):
        self._arguments = run, out, num_threads
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, tuple[Any, Connection]] = {}
        self._dismissed: list[Any] = []
        self._numbers = count()

    def start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, *self._arguments))
        variables = WORKER_ENVIRONMENT | {"NPROC": str(self._arguments[-1])}
        with _environment(variables), _interrupts_blocked():
            process.start()
        theirs.close()
        self._workers[next(self._numbers)] = process, ours

    def give(self, worker: int, trial: Trial) -> None:
        with suppress(BrokenPipeError):  # that it died shows soon enough
            self._workers[worker][1].send(trial)

    def events(self, timeout: float) -> Iterator[tuple[int, Event]]:
        numbers: dict[Any, int] = {pipe: number for number, (_, pipe) in self._workers.items()}
        for ready in connection.wait(list(numbers), timeout):
            number = numbers[ready]
            process, pipe = self._workers[number]
            try:
                while number in self._workers and pipe.poll():
                    yield number, pipe.recv()
            except (EOFError, OSError):  # the other end went with its process
                del self._workers[number]
                pipe.close()
                process.join()
                yield number, Lost(_cause(process.exitcode))

    def stop(self) -> None:
        for _, pipe in self._workers.values():
            with suppress(BrokenPipeError):
                pipe.send(None)

    def dismiss(self, worker: int) -> None:
        process, pipe = self._workers.pop(worker)
        pipe.close()  # at which it ends
        self._dismissed.append(process)

    def close(self) -> None:
        for worker in list(self._workers):
            self.dismiss(worker)
        for process in self._dismissed:
            process.join()
            process.close()


def _serve(pipe: Connection, run: Run, out: Path, num_threads: int) -> None:
    """What a worker of this machine does, until the pipe closes: nobody is left then who wants to know."""
    trials: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    stop = threading.Event()

    def listen() -> None:
        try:
            while True:
                message = pipe.recv()
                if message is None:
                    stop.set()
                else:
                    trials.put(message)
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    with suppress(BrokenPipeError):
        pipe.send(Idle())
        while True:
            for message in carry_out(run, trials.get(), out, stop, num_threads):
                pipe.send(message)


def _cause(exit_code: int | None) -> str:
    """How a process ended, in words."""
    if exit_code is None or exit_code >= 0:
        return f"it ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    return f"it was ended by {name}" + (", as when memory runs out" if name == "SIGKILL" else "")


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for processes that are started meanwhile: JAX reads them when it is imported."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C, which a terminal sends to all processes, is not for those that are started meanwhile."""
    resource_tracker.ensure_running()  # which would unblock it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
