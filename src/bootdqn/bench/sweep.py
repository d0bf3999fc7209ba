"""Benchmark of the overhead of executors, which carry out the same trials one after the other."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import jax

from bootdqn.bench.chain import CHAIN_CONFIG
from bootdqn.core.config import AgentConfig
from bootdqn.envs.chain import Chain
from bootdqn.errors import require
from bootdqn.experiments.engine.experiment import Context, Cost, Executor, Experiment, ResultRow, Trial
from bootdqn.experiments.engine.local import LocalExecutor
from bootdqn.experiments.engine.ray import RayExecutor
from bootdqn.experiments.engine.runner import read_results, run_sweep
from bootdqn.loops.compiled import make_compiled_loop
from bootdqn.loops.seeds import available_cores
from bootdqn.runs.directory import provenance

TRIAL_SECONDS = 30.0
TRIALS_PER_CORE = 3
_EPISODES = 10**6
"""More episodes than there is time for."""


@dataclass(frozen=True, kw_only=True)
class BusyConfig:
    """A training on the chain for a given time, so that all trials take equally long."""

    seconds: float
    """How long to train."""
    agent: AgentConfig
    """The agent to train."""


def run_busy(config: BusyConfig, context: Context) -> list[ResultRow] | None:
    """Train until the time is over; the row has the process, the start and the end."""
    start = time.time()
    deadline = time.perf_counter() + config.seconds
    training = make_compiled_loop(Chain(length=50), config.agent, seeds=(0,), episodes=_EPISODES)

    def is_over() -> bool:
        return time.perf_counter() > deadline or context.should_stop()

    for _ in training.chunks(is_over, pool=context.pool):
        context.report(min(1.0, 1 - (deadline - time.perf_counter()) / config.seconds))
    return None if context.should_stop() else [{"worker": os.getpid(), "start": start, "end": time.time()}]


def bench_sweep(report: Callable[[str], None]) -> dict[str, Any]:
    """Time trials of half a minute, three per core, in worker processes of this machine and on Ray.

    Args:
        report: takes every figure as soon as it is measured.

    Returns:
        For every executor the seconds `before_first_trial` (once per sweep: processes start and import JAX), the
        mean seconds `between_trials` of a worker, and that as a share of a trial, the `overhead`.
    """
    cores, seconds = available_cores(), TRIAL_SECONDS
    config = BusyConfig(seconds=seconds, agent=CHAIN_CONFIG)
    trials = [Trial(f"t{index}", config) for index in range(TRIALS_PER_CORE * cores)]
    makers: dict[str, Any] = {"local": lambda: nullcontext(LocalExecutor()), "ray": RayExecutor}
    results: dict[str, dict[str, float]] = {}
    for name, make in makers.items():
        begin = time.time()
        with make() as executor, tempfile.TemporaryDirectory() as folder:
            spans = _spans(trials, executor, Path(folder) / "sweep")
        gaps = [later[0] - earlier[1] for of_worker in spans for earlier, later in pairwise(of_worker)]
        results[name] = {
            "workers": len(spans),
            "before_first_trial": min(of_worker[0][0] for of_worker in spans) - begin,
            "between_trials": fmean(gaps),
            "overhead": fmean(gaps) / seconds,
            "wall_seconds": max(of_worker[-1][1] for of_worker in spans) - begin,
        }
        report(f"{name}: {fmean(gaps):.3f} s between trials, {results[name]['overhead']:.2%} of their time")
    return {
        "benchmark": "sweep",
        "setting": f"{len(trials)} trials of {seconds:g} s each on the chain",
        "cores": cores,
        "backend": jax.default_backend(),
        **provenance(),
        "executors": results,
    }


def _spans(trials: list[Trial], executor: Executor, out: Path) -> list[list[tuple[float, float]]]:
    """Run the trials, and return the starts and ends of those of every worker, in order."""
    experiment = Experiment(
        name="busy",
        summary="",
        sweep=lambda preset: trials,
        run=run_busy,
        describe=lambda config: {},
        cost=lambda config: Cost(config.seconds, config.seconds, 10**8),
        plot=lambda rows, stem: "",
    )
    about = {"experiment": experiment.name}
    end = run_sweep(experiment, trials, out, about=about, command="", executor=executor, show=lambda text: None)
    require(end.complete, f"the benchmark was stopped, or failed: {', '.join(end.failed.values())}")
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in read_results(out):
        spans.setdefault(row["worker"], []).append((float(row["start"]), float(row["end"])))
    return [sorted(of_worker) for of_worker in spans.values()]
