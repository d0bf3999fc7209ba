"""`bootdqn reproduce` carries out an experiment, from its sweep to its figure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bootdqn.cli.sweep import DEFAULT_ENGINE, Engine, exit_code, make_executor
from bootdqn.errors import require_known
from bootdqn.experiments.engine.experiment import Preset
from bootdqn.experiments.engine.runner import SweepEnd, find_results, read_results, run_sweep
from bootdqn.experiments.registry import EXPERIMENTS
from bootdqn.runs.directory import write_atomically

_DESCRIPTION = """Run an experiment and draw its figure; repeat the command to resume one that was stopped.

examples:
  bootdqn reproduce chain-scaling --preset quick
  bootdqn reproduce chain-scaling --preset paper --out results/chain-scaling
  bootdqn reproduce atari-49 --preset paper --executor ray --address auto --out /shared/atari-49

`bootdqn list` names the experiments."""


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """The command line of `bootdqn reproduce`."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Name of the experiment, such as chain-scaling."""
    preset: Preset = "quick"
    """smoke: seconds, to see that it runs; quick: minutes; paper: the paper's settings."""
    only_draw: bool = False
    """Run nothing, but draw the results that there are."""
    engine: tyro.conf.OmitArgPrefixes[Engine] = DEFAULT_ENGINE
    """Where trials run."""
    out: Path | None = None
    """Where results and figure go; by default runs/NAME-PRESET."""


def main(arguments: list[str]) -> int:
    """Run the trials that have no result yet, then draw all results."""
    options = tyro.cli(ReproduceOptions, prog="bootdqn reproduce", description=_DESCRIPTION, args=arguments)
    require_known("experiment", options.name, EXPERIMENTS)
    experiment = EXPERIMENTS[options.name]
    out = options.out or Path("runs") / f"{options.name}-{options.preset}"
    command = shlex.join(["bootdqn", "reproduce", *arguments])
    trials, about = experiment.sweep(options.preset), {"experiment": options.name, "preset": options.preset}
    if options.only_draw:
        end = SweepEnd(find_results(experiment, trials, out, about=about, command=command), {})
    else:
        with make_executor(options.engine, brief=options.preset == "smoke") as executor:
            end = run_sweep(experiment, trials, out, about=about, command=command, executor=executor)
    rows = read_results(out)
    if rows:
        stem = out / options.name
        summary = experiment.plot(rows, stem)
        write_atomically(out / "summary.md", f"{summary}\n".encode())
        print(f"\n{summary}\n\nfigure:  {stem}.png, .svg\nresults: {out / 'results.csv'}")
    return 0 if options.only_draw else exit_code(end, out)
