"""Carries out trials on a Ray cluster; workers are actors, and one that is lost with its node is replaced."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from bootdqn.cluster import (
    WORKER_BYTES,
    WORKER_ENVIRONMENT,
    describe_machine,
    join_cluster,
    reason,
    require_same_versions,
)
from bootdqn.errors import require
from bootdqn.experiments.executors import Event, Idle, Lost, Share, carry_out, schedule
from bootdqn.experiments.runner import Cost, Outcome, Run, Trial, Work

_GPU_BYTES = 800_000_000
"""What a process takes of a GPU's memory beside its trial: its context, compiled programs and room to compute."""
_SECONDS_BETWEEN_QUESTIONS = 1.0
_GPU_SHARE_USED = 0.9
"""Of its share of a GPU's memory, what JAX may take; the rest is the process's context."""


class Needs(NamedTuple):
    """What a worker asks of its node."""

    bytes: int
    gpus: float

    @classmethod
    def of(cls, costs: Sequence[Cost], gpu_bytes: int) -> Needs:
        """What the trial that needs most takes, with GPUs of so much memory; 0 for none."""
        needed = max(cost.bytes for cost in costs) + WORKER_BYTES
        if not gpu_bytes:
            return cls(needed, 0.0)
        on_gpu = max(cost.bytes if cost.device_bytes is None else cost.device_bytes for cost in costs) + _GPU_BYTES
        require(
            on_gpu <= gpu_bytes, f"a trial needs {on_gpu / 1e9:.1f} GB of a GPU that has {gpu_bytes / 1e9:.1f} GB"
        )
        return cls(needed, 1 / (gpu_bytes // on_gpu))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the worker."""
        share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_GPU_SHARE_USED * self.gpus:.3f}"} if self.gpus else {}
        return WORKER_ENVIRONMENT | share

    def fit(self, resources: dict[str, float]) -> int:
        """How many such workers a node has room for."""
        room = [resources.get("CPU", 0.0), resources.get("memory", 0.0) / self.bytes]
        room += [resources.get("GPU", 0.0) / self.gpus + 1e-6] if self.gpus else []
        return int(min(room))


class RayExecutor:
    """Runs trials on a Ray cluster, one core each, as many as nodes have room for; a context manager."""

    def __init__(self, address: str | None = None, *, gpu_bytes: int = 0):
        """Join a cluster.

        Args:
            address: of its head, or `auto` where this machine belongs to it; None for a new one of this machine.
            gpu_bytes: memory of each of its GPUs, if trials shall run there.
        """
        self._ray = join_cluster(address)
        self._gpu_bytes = gpu_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @property
    def cores(self) -> int:
        """Of the whole cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def fit(self, costs: Sequence[Cost]) -> int:
        """How many trials run at once, on the nodes that there are now."""
        needs = Needs.of(costs, self._gpu_bytes)
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        number = min(len(costs), sum(map(needs.fit, nodes)))
        gpu = f", {needs.gpus:g} of a GPU" if needs.gpus else ""
        require(
            number > 0,
            f"no node of the Ray cluster has room for a trial: a core, {needs.bytes / 1e9:.1f} GB of memory{gpu}",
        )
        return number

    def execute(
        self, work: Work, should_stop: Callable[[], bool], report: Callable[[str, float], None]
    ) -> Generator[Outcome]:
        """Carry out trials by actors."""
        if work.trials:
            workers = _Actors(self._ray, work.run, work.out, Needs.of(work.costs, self._gpu_bytes))
            yield from schedule(workers, work.trials, self.fit(work.costs), should_stop, report)


class _Actor:
    """What a worker in a cluster is: does one trial at a time, and answers meanwhile."""

    def __init__(self, run: Run, out: Path, variables: dict[str, str]):
        # JAX has been imported but has not begun to compute, which is when it and XLA read most of these.
        os.environ.update(variables)
        self._run, self._out = run, out
        self._stop = threading.Event()
        self._share = 0.0

    def hello(self) -> tuple[bool, str, dict[str, str]]:
        """Whether it sees the sweep's directory, the machine's name, and versions of packages."""
        return os.access(self._out / "sweep.json", os.R_OK), *describe_machine()

    def carry_out(self, trial: Trial) -> Outcome:
        """Run a trial to its end."""
        self._share = 0.0
        for message in carry_out(self._run, trial, self._out, self._stop):
            if isinstance(message, Outcome):
                return message
            self._share = message.share
        raise AssertionError("a trial ends")

    def share(self) -> float:
        """Which share of the trial is done."""
        return self._share

    def stop(self) -> None:
        """Tell the trial to stop."""
        self._stop.set()


class _Actors:
    """Workers somewhere in a cluster."""

    def __init__(self, ray: Any, run: Run, out: Path, needs: Needs):
        self._ray = ray
        self._arguments = run, out, needs.environment
        # Two calls at a time: the trial, and questions about it.
        self._make = ray.remote(_Actor).options(
            num_cpus=1, num_gpus=needs.gpus, memory=needs.bytes, max_restarts=0, max_concurrency=2
        )
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}
        """Workers by what they were asked to do: to say hello, or to carry out a trial."""
        self._questions: dict[Any, int] = {}
        """Workers by the question how far they are."""
        self._busy: set[int] = set()
        """Workers that have a trial."""
        self._asked = 0.0
        self._numbers = count()

    def start(self) -> None:
        number = next(self._numbers)
        self._actors[number] = self._make.remote(*self._arguments)
        self._calls[self._actors[number].hello.remote()] = number

    def give(self, worker: int, trial: Trial) -> None:
        self._busy.add(worker)
        self._calls[self._actors[worker].carry_out.remote(trial)] = worker

    def events(self, timeout: float) -> Iterator[tuple[int, Event]]:
        self._ask()
        pending = [*self._calls, *self._questions]
        self._ray.wait(pending, timeout=timeout)
        ready, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)
        for call in ready:
            is_question = call in self._questions
            worker = (self._questions if is_question else self._calls).pop(call, None)
            if worker is None:  # of one that was found dead a moment ago
                continue
            try:
                answer = self._ray.get(call)
            except self._ray.exceptions.RayActorError as error:
                self.dismiss(worker)  # it may live where nobody reaches it
                yield worker, Lost(reason(error))
                continue
            if is_question:
                if worker in self._busy:
                    yield worker, Share(answer)
            elif isinstance(answer, Outcome):
                self._busy.discard(worker)
                yield worker, answer
            else:
                self._require_fit(*answer)
                yield worker, Idle()

    def _ask(self) -> None:
        """Ask every worker that has a trial how far it is, every now and then."""
        if self._questions or time.monotonic() - self._asked < _SECONDS_BETWEEN_QUESTIONS:
            return
        self._asked = time.monotonic()
        self._questions = {self._actors[worker].share.remote(): worker for worker in self._busy}

    def _require_fit(self, sees_directory: bool, host: str, versions: dict[str, str]) -> None:
        """Refuse a node on which trials would not be what they are elsewhere."""
        require(
            sees_directory,
            f"{host} does not see {self._arguments[1]}: a sweep needs a directory that all nodes mount under the "
            "same name",
        )
        require_same_versions(host, versions)

    def stop(self) -> None:
        for actor in self._actors.values():
            actor.stop.remote()

    def dismiss(self, worker: int) -> None:
        self._ray.kill(self._actors.pop(worker))
        self._busy.discard(worker)
        for calls in (self._calls, self._questions):
            for call in [call for call, number in calls.items() if number == worker]:
                del calls[call]

    def close(self) -> None:
        for worker in list(self._actors):
            self.dismiss(worker)
