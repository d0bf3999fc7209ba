"""Carries out trials in worker processes of this machine, one trial after the other in each of them."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bootdqn.errors import require
from bootdqn.experiments.engine.experiment import Cost, Outcome, RunTrial, Trial, Work
from bootdqn.experiments.engine.scheduler import Alive, Event, Lost, Ready, carry_out, schedule
from bootdqn.loops.seeds import available_cores
from bootdqn.loops.workers import WORKER_BYTES, WORKER_ENVIRONMENT
from bootdqn.replay.host_memory import available_memory


class LocalExecutor:
    """Runs trials on this machine, in as many processes as its cores and its memory allow."""

    def __init__(self):
        self.cores = available_cores()

    def fit(self, costs: Sequence[Cost]) -> int:
        """Return how many trials run at once, such that even those that need most memory fit."""
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
        """Carry out the trials as `Executor` describes it; cores that would idle run seeds side by side."""
        if work.trials:
            number = self.fit(work.costs)
            num_threads = min(self.cores // number, *(cost.threads for cost in work.costs))
            workers = _Processes(work.run, work.out, num_threads)
            yield from schedule(workers, work.trials, number, should_stop, report)


class _Processes:
    """Workers that are new Python processes of this machine, each with a pipe to this one."""

    def __init__(self, run: RunTrial, out: Path, num_threads: int):
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
        with suppress(BrokenPipeError):  # its death shows as the next event
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


def _serve(pipe: Connection, run: RunTrial, out: Path, num_threads: int) -> None:
    """Carry out the trials that come through a pipe, and end at once when the other side closes it."""
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
        pipe.send(Ready())
        while True:
            outcome = carry_out(
                run,
                trials.get(),
                out,
                should_stop=stop.is_set,
                report=lambda share: pipe.send(Alive(share)),
                num_threads=num_threads,
            )
            pipe.send(outcome)


def _cause(exit_code: int | None) -> str:
    """Say in words how a process ended."""
    if exit_code is None or exit_code >= 0:
        return f"it ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    return f"it was ended by {name}" + (", as when memory runs out" if name == "SIGKILL" else "")


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started in this context: JAX reads them on import."""
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
    """Keep Ctrl-C, which a terminal sends to all processes, from those that are started in this context."""
    resource_tracker.ensure_running()  # which would unblock it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
