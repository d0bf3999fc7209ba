"""Carries out trials on a Ray cluster by actors, which are replaced when they are lost with their node."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from bootdqn.errors import require
from bootdqn.experiments.engine.experiment import Cost, Outcome, RunTrial, Trial, Work
from bootdqn.experiments.engine.scheduler import Alive, Event, Lost, Ready, carry_out, schedule
from bootdqn.loops.workers import (
    WORKER_BYTES,
    WORKER_ENVIRONMENT,
    describe_machine,
    join_cluster,
    reason,
    require_same_versions,
)

_GPU_BYTES = 800_000_000
"""GPU memory that a process needs besides its trial: its context, compiled programs and room to compute."""
_SECONDS_BETWEEN_QUESTIONS = 1.0
_GPU_SHARE_USED = 0.9
"""The part of its share of a GPU's memory that JAX may take; the rest is for the context of the process."""


class Needs(NamedTuple):
    """The resources that a worker asks of its node, beside one core."""

    bytes: int
    """Main memory."""
    gpus: float
    """The share of a GPU, or 0 if the worker uses none."""

    @classmethod
    def of(cls, costs: Sequence[Cost], gpu_bytes: int) -> Needs:
        """Return what the largest of some trials needs, on GPUs with `gpu_bytes` of memory each (0: no GPUs)."""
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
        """The environment variables of the worker."""
        share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_GPU_SHARE_USED * self.gpus:.3f}"} if self.gpus else {}
        return WORKER_ENVIRONMENT | share

    def fit(self, resources: dict[str, float]) -> int:
        """Return how many such workers a node with these resources has room for."""
        room = [resources.get("CPU", 0.0), resources.get("memory", 0.0) / self.bytes]
        room += [resources.get("GPU", 0.0) / self.gpus + 1e-6] if self.gpus else []
        return int(min(room))


class RayExecutor:
    """Runs trials on a Ray cluster with one core each, as many as its nodes have room for.

    It is a context manager that leaves the cluster at its end.
    """

    def __init__(self, address: str | None = None, *, gpu_bytes: int = 0):
        """Join a Ray cluster, or start one on this machine.

        Args:
            address: the address of its head, `auto` for the cluster that this machine belongs to, or None for a
                new cluster on this machine.
            gpu_bytes: the memory of each of its GPUs if trials should run there, or 0.
        """
        self._ray = join_cluster(address)
        self._gpu_bytes = gpu_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @property
    def cores(self) -> int:
        """The number of cores of the whole cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def fit(self, costs: Sequence[Cost]) -> int:
        """Return how many trials run at once on the nodes that the cluster has now."""
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
        """Carry out the trials as `Executor` describes it."""
        if work.trials:
            workers = _Actors(self._ray, work.run, work.out, Needs.of(work.costs, self._gpu_bytes))
            yield from schedule(workers, work.trials, self.fit(work.costs), should_stop, report)


class _Actor:
    """The worker in a cluster, which runs one trial at a time and answers questions meanwhile."""

    def __init__(self, run: RunTrial, out: Path, variables: dict[str, str]):
        # JAX has been imported but has not begun to compute, which is when it and XLA read most of these.
        os.environ.update(variables)
        self._run, self._out = run, out
        self._stop = threading.Event()
        self._share = 0.0

    def hello(self) -> tuple[bool, str, dict[str, str]]:
        """Return whether it sees the directory of the sweep, the name of its machine, and versions of packages."""
        return os.access(self._out / "sweep.json", os.R_OK), *describe_machine()

    def carry_out(self, trial: Trial) -> Outcome:
        """Run a trial to its end."""
        self._note(0.0)
        return carry_out(self._run, trial, self._out, should_stop=self._stop.is_set, report=self._note)

    def _note(self, share: float) -> None:
        self._share = share

    def share(self) -> float:
        """Return the share of the trial that is done."""
        return self._share

    def stop(self) -> None:
        """Tell the trial to stop."""
        self._stop.set()


class _Actors:
    """Workers that are actors somewhere in a cluster."""

    def __init__(self, ray: Any, run: RunTrial, out: Path, needs: Needs):
        self._ray = ray
        self._arguments = run, out, needs.environment
        # Two calls at a time: the trial, and the question for its progress.
        self._make = ray.remote(_Actor).options(
            num_cpus=1, num_gpus=needs.gpus, memory=needs.bytes, max_restarts=0, max_concurrency=2
        )
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}
        """Workers by their pending call, which is `hello` or `carry_out`."""
        self._questions: dict[Any, int] = {}
        """Workers by their pending call of `share`."""
        self._busy: set[int] = set()
        """The workers that have a trial."""
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
            if worker is None:  # its worker was found dead a moment ago
                continue
            try:
                answer = self._ray.get(call)
            except self._ray.exceptions.RayActorError as error:
                self.dismiss(worker)  # it may still run where nobody reaches it
                yield worker, Lost(reason(error))
                continue
            if is_question:
                if worker in self._busy:
                    yield worker, Alive(answer)
            elif worker in self._busy:
                self._busy.discard(worker)
                yield worker, answer
            else:
                self._require_fit(*answer)
                yield worker, Ready()

    def _ask(self) -> None:
        """Ask every worker that has a trial for its progress, every now and then."""
        if self._questions or time.monotonic() - self._asked < _SECONDS_BETWEEN_QUESTIONS:
            return
        self._asked = time.monotonic()
        self._questions = {self._actors[worker].share.remote(): worker for worker in self._busy}

    def _require_fit(self, sees_directory: bool, host: str, versions: dict[str, str]) -> None:
        """Refuse a node on which trials would differ from those on other nodes."""
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
