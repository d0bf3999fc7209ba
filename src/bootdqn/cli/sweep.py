"""`bootdqn sweep` carries out many runs at once, on this machine or on a cluster."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.errors import require
from bootdqn.experiments.engine.experiment import Executor
from bootdqn.experiments.engine.grid import grid_experiment, make_grid
from bootdqn.experiments.engine.in_process import InProcessExecutor
from bootdqn.experiments.engine.local import LocalExecutor
from bootdqn.experiments.engine.ray import RayExecutor
from bootdqn.experiments.engine.runner import SweepEnd, read_results, run_sweep
from bootdqn.runs.directory import read_json, write_atomically
from bootdqn.runs.progress import clock

_DESCRIPTION = """Train agents on environments with several seeds and values of fields, many runs at once.

Repeating the command resumes what was stopped or killed, and tries again what failed.

examples:
  bootdqn sweep chain:20 deep_sea:10 --agents boot dqn --seeds 3 --out runs/first
  bootdqn sweep CartPole-v1 --seeds 5 --set learning_rate=0.001,0.002 --set steps=20000
  bootdqn sweep --status runs/first
  bootdqn sweep atari:breakout --seeds 3 --executor ray --address auto --out /shared/breakout"""
_SECONDS_TO_WORRY = 60.0
"""How long a sweep may be silent before its status says so."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The flags that say where trials run, which several verbs share."""

    executor: Literal["auto", "in-process", "local", "ray"] = "auto"
    """in-process: one after the other in this process; local: worker processes on this machine; ray: a cluster of
    Ray; auto: in-process for a smoke preset, and local otherwise."""
    address: str | None = None
    """Address of the Ray cluster; auto is the one that this machine belongs to. By default a new cluster is
    started on this machine."""
    gpu_memory: float = 0.0
    """Memory of every GPU of the Ray cluster in GB; trials then run on GPUs, as many on each as fit."""


DEFAULT_ENGINE = Engine()


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The command line of `bootdqn sweep`."""

    envs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ENV...")] = ()
    """Environments, such as chain:50, CartPole-v1 or atari:breakout."""
    agents: tuple[str, ...] | None = None
    """Names of agents; by default boot-prior on Gymnasium environments, and boot elsewhere."""
    num_seeds: Annotated[int, tyro.conf.arg(name="seeds")] = 1
    """Number of seeds of every combination."""
    seed: int = 0
    """First seed; the others count up from it."""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="FIELD=V1,V2")
    ] = ()
    """A field of the run or of the agent and its values, such as num_heads=5,10 or, for layers, hidden=64,64x64.
    If repeated, all combinations are run."""
    engine: tyro.conf.OmitArgPrefixes[Engine] = DEFAULT_ENGINE
    """Where trials run."""
    out: Path | None = None
    """Where runs and results go; by default a new directory under runs/."""
    status: Path | None = None
    """Run nothing, but show the status of the sweep in this directory."""


def main(arguments: list[str]) -> int:
    """Run the trials that have no result yet, then show all results."""
    options = tyro.cli(SweepOptions, prog="bootdqn sweep", description=_DESCRIPTION, args=arguments)
    if options.status is not None:
        show_status(options.status)
        return 0
    require(
        bool(options.envs), "name an environment, as in: bootdqn sweep chain:20; or a sweep, with --status DIR"
    )
    require(options.num_seeds >= 1, f"seeds must be at least 1, got {options.num_seeds}")
    seeds = range(options.seed, options.seed + options.num_seeds)
    trials = make_grid(options.envs, options.agents, seeds, options.settings)
    experiment = grid_experiment(trials, options.settings)
    out = options.out or Path("runs") / f"sweep-{datetime.now():%Y%m%d-%H%M%S}"
    strangers = sorted({path.stem for path in (out / "trials").glob("*.json")} - {trial.name for trial in trials})
    require(
        not strangers,
        f"{out} holds results of another sweep, such as {', '.join(strangers[:1])}, which this one does not have; "
        "choose another --out, or add those trials to this sweep",
    )
    with make_executor(options.engine) as executor:
        end = run_sweep(
            experiment,
            trials,
            out,
            about={"experiment": "sweep"},
            command=shlex.join(["bootdqn", "sweep", *arguments]),
            executor=executor,
        )
    rows = read_results(out)
    if rows:
        summary = experiment.plot(rows, out / "sweep")
        write_atomically(out / "summary.md", f"{summary}\n".encode())
        print(f"\n{summary}\n\nruns:    {out / 'runs'}\nresults: {out / 'results.csv'}")
    return exit_code(end, out)


@contextmanager
def make_executor(engine: Engine, *, brief: bool = False) -> Iterator[Executor]:
    """Make the executor that the command line asks for.

    Args:
        engine: the flags of the command line.
        brief: whether the trials take seconds, for which worker processes are not worth starting.
    """
    if engine.executor == "ray":
        with RayExecutor(engine.address, gpu_bytes=round(engine.gpu_memory * 1e9)) as executor:
            yield executor
        return
    require(engine.address is None, "--address belongs to --executor ray")
    require(engine.gpu_memory == 0, "--gpu-memory belongs to --executor ray")
    in_process = engine.executor == "in-process" or (engine.executor == "auto" and brief)
    yield InProcessExecutor() if in_process else LocalExecutor()


def exit_code(end: SweepEnd, out: Path) -> int:
    """Show what failed or is missing, and return the exit code: 0 complete, 1 failed, 130 interrupted."""
    if end.failed:
        _show_failed(end.failed)
        print(f"details are in {out / 'failed'}; repeat the command to try them again")
        return 1
    if not end.complete:
        print(f"interrupted; finished trials are in {out}: repeat the command to resume")
        return 130
    return 0


def show_status(path: Path) -> None:
    """Show the status of the sweep in a directory."""
    require((path / "status.json").exists(), f"{path} holds no status.json; is it the directory of a sweep?")
    status = read_json(path / "status.json")
    eta = status["eta_seconds"]
    waiting = status["trials"] - status["done"] - len(status["running"]) - len(status["failed"])
    table = Table()
    for heading in ("trials", "waiting", "running", "done", "failed", "ETA"):
        table.add_column(heading, justify="right")
    counts = [status["trials"], waiting, len(status["running"]), status["done"], len(status["failed"])]
    table.add_row(*map(str, counts), "-" if eta is None else clock(eta))
    console = Console()
    console.print(table)
    if status["running"]:
        _show_running(console, status["running"])
    if status["failed"]:
        _show_failed(status["failed"])
    silent = time.time() - status["updated"]
    if status["ended"]:
        print("the sweep has ended" if not waiting else "the sweep was stopped; repeat its command to resume")
    elif silent > _SECONDS_TO_WORRY:
        print(f"the sweep has been silent for {clock(silent)}; if it was killed, repeat its command to resume")


def _show_running(console: Console, shares: Mapping[str, Any]) -> None:
    table = Table()
    table.add_column("running")
    table.add_column("done", justify="right")
    for name, share in shares.items():
        table.add_row(name, f"{share:.0%}")
    console.print(table)


def _show_failed(errors: Mapping[str, str]) -> None:
    table = Table()
    for heading in ("failed", "because"):
        table.add_column(heading, overflow="fold")
    for name, error in errors.items():
        table.add_row(name, error)
    Console().print(table)
