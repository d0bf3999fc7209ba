"""Trials for tests of sweeps, found by name in the processes that carry them out."""

from __future__ import annotations

import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bootdqn.errors import UserError
from bootdqn.experiments.engine.experiment import Context, Cost, Experiment, ResultRow, Trial
from bootdqn.loops.workers import WORKER_ENVIRONMENT
from bootdqn.replay.host_memory import keep_large_blocks


def context(**fields: Any) -> Context:
    """What a trial is given that nothing stops, but for some fields."""
    defaults: dict[str, Any] = {"should_stop": lambda: False, "report": lambda share: None, "out": Path()}
    return Context(**{"pool": ThreadPoolExecutor(2), **defaults, **fields})


@dataclass(frozen=True)
class Deed:
    """What a trial does."""

    deed: str = "square"
    number: int = 0


def run(config: Deed, context: Context) -> list[ResultRow] | None:
    """Square a number, unless it is to do something else first."""
    attempts = Path(context.out, f"{context.trial}.attempts")
    with attempts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if config.deed == "die" or (config.deed == "die once" and len(attempts.read_text().splitlines()) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if config.deed == "fail":
        raise UserError("cannot do that")
    if config.deed == "crash":
        raise ZeroDivisionError("oh")
    while config.deed == "wait" and not context.should_stop():
        context.report(0.5)
        time.sleep(0.05)
    if context.should_stop():
        return None
    if config.deed == "allocate":
        return [{"pages": _new_pages()}]
    threads = ",".join(os.environ[name] for name in WORKER_ENVIRONMENT)
    return [{"square": config.number**2, "environment": threads}]


def _new_pages() -> int:
    """How many pages the system has to clear while five arrays of 12 MB are made and freed, again and again."""
    keep_large_blocks()
    pages = []
    for _ in range(22):
        pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        _ = [np.ones(3 * 2**19) for _ in range(5)]
    return pages[-1] - pages[2]


def deeds(*trials: Deed) -> Experiment:
    """An experiment of such trials, called t0, t1 and so on."""
    return Experiment(
        name="deeds",
        summary="",
        sweep=lambda preset: [Trial(f"t{index}", trial) for index, trial in enumerate(trials)],
        run=run,
        describe=lambda config: {"deed": config.deed},
        cost=lambda config: Cost(1.0, 1.0, 10**6),
        plot=lambda rows, stem: "",
    )
