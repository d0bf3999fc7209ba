"""`bootdqn reproduce`: an experiment, from its sweep to its figure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bootdqn.errors import require_known
from bootdqn.experiments.catalog import EXPERIMENTS
from bootdqn.experiments.runner import Preset, read_results, run_sweep
from bootdqn.runs.directory import write_atomically

_DESCRIPTION = """Run an experiment and draw its figure; one that was stopped goes on when the command is repeated.

examples:
  bootdqn reproduce chain-scaling --preset quick
  bootdqn reproduce chain-scaling --preset paper --out results/chain-scaling

`bootdqn list` names the experiments."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of `bootdqn reproduce`."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Experiment, such as chain-scaling."""
    preset: Preset = "quick"
    """smoke: seconds, to see that it runs; quick: minutes; paper: the paper's settings."""
    only_draw: bool = False
    """Run nothing: draw from the results and runs that there are."""
    out: Path | None = None
    """Where results and figure go; by default runs/NAME-PRESET."""


def main(arguments: list[str]) -> int:
    """Run what is missing, then draw what there is."""
    options = tyro.cli(Options, prog="bootdqn reproduce", description=_DESCRIPTION, args=arguments)
    require_known("experiment", options.name, EXPERIMENTS)
    experiment = EXPERIMENTS[options.name]
    out = options.out or Path("runs") / f"{options.name}-{options.preset}"
    command = shlex.join(["bootdqn", "reproduce", *arguments])
    complete = run_sweep(experiment, options.preset, out, command=command, only_find=options.only_draw)
    rows = read_results(out)
    if rows:
        stem = out / options.name
        summary = experiment.plot(rows, stem)
        write_atomically(out / "summary.md", f"{summary}\n".encode())
        print(f"\n{summary}\n\nfigure:  {stem}.png, .svg\nresults: {out / 'results.csv'}")
    if not complete and not options.only_draw:
        print(f"interrupted; what is finished is in {out}, and the same command goes on from there")
        return 130
    return 0
