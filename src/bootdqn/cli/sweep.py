"""`bootdqn sweep`: many runs at once, on this machine or on a cluster."""

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
from bootdqn.experiments.executors import LocalExecutor
from bootdqn.experiments.grid import grid_experiment, make_grid
from bootdqn.experiments.ray_executor import RayExecutor
from bootdqn.experiments.runner import Executor, SweepEnd, read_results, run_sweep
from bootdqn.progress import clock
from bootdqn.runs.directory import read_json, write_atomically

_DESCRIPTION = """Train agents on environments, for several seeds and values of fields; many runs at once.

Repeating the command goes on with what was stopped or killed, and tries again what failed.

examples:
  bootdqn sweep chain:20 deep_sea:10 --agents boot dqn --seeds 3 --out runs/first
  bootdqn sweep CartPole-v1 --seeds 5 --set learning_rate=0.001,0.002 --set steps=20000
  bootdqn sweep --status runs/first
  bootdqn sweep atari:breakout --seeds 3 --executor ray --address auto --out /shared/breakout"""
ExecutorName = Literal["local", "ray"]
_SECONDS_TO_WORRY = 60.0
"""Without news from a sweep."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where trials run; flags that verbs share."""

    executor: ExecutorName = "local"
    """local: processes of this machine; ray: a Ray cluster."""
    address: str | None = None
    """Of the Ray cluster; auto is the one that this machine belongs to. By default a new one, of this machine."""
    gpu_memory: float = 0.0
    """GB that every GPU of the Ray cluster has; then trials run on GPUs, as many on one as fit."""


HERE = Engine()
"""The default."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of `bootdqn sweep`."""

    envs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ENV...")] = ()
    """Environments, such as chain:50, CartPole-v1 or atari:breakout."""
    agents: tuple[str, ...] = ("boot",)
    """Named agents."""
    num_seeds: Annotated[int, tyro.conf.arg(name="seeds")] = 1
    """Runs of every combination."""
    seed: int = 0
    """Of the first; the others count up from it."""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="FIELD=V1,V2")
    ] = ()
    """A field of the run or of the agent and its values, such as num_heads=5,10 or, of layers, hidden=64,64x64.
    May be repeated, for every combination."""
    engine: tyro.conf.OmitArgPrefixes[Engine] = HERE
    """Where trials run."""
    out: Path | None = None
    """Where runs and results go; by default a new directory under runs/."""
    status: Path | None = None
    """Run nothing: say how far the sweep in this directory is."""


def main(arguments: list[str]) -> int:
    """Run what is missing, then show what there is."""
    options = tyro.cli(Options, prog="bootdqn sweep", description=_DESCRIPTION, args=arguments)
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
        "choose another --out, or ask for those, too",
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
def make_executor(engine: Engine) -> Iterator[Executor]:
    """What the command line asks for."""
    if engine.executor == "ray":
        with RayExecutor(engine.address, gpu_bytes=round(engine.gpu_memory * 1e9)) as executor:
            yield executor
        return
    require(engine.address is None, "--address belongs to --executor ray")
    require(engine.gpu_memory == 0, "--gpu-memory belongs to --executor ray")
    yield LocalExecutor()


def exit_code(end: SweepEnd, out: Path) -> int:
    """Show what failed, and say what to do if that was not all: 0, 1 failed, 130 interrupted."""
    if end.failed:
        _show_failed(end.failed)
        print(f"more about each is in {out / 'failed'}; the same command tries them again")
        return 1
    if not end.complete:
        print(f"interrupted; what is finished is in {out}, and the same command goes on from there")
        return 130
    return 0


def show_status(path: Path) -> None:
    """How far the sweep in a directory is, as it says itself."""
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
        print("it has ended" if not waiting else "it was stopped; the same command goes on from there")
    elif silent > _SECONDS_TO_WORRY:
        print(
            f"nothing was heard of it for {clock(silent)}; if it was killed, the same command goes on from there"
        )


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
