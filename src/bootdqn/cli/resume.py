"""`bootdqn resume`: continue with a run that was stopped or killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bootdqn.cli.train import finish
from bootdqn.runs.parts import Inputs
from bootdqn.runs.run import resume_run

_DESCRIPTION = """Continue with a run that was stopped or killed, from its last good checkpoint, to the same end.

example:
  bootdqn resume runs/cartpole"""


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """The command line of `bootdqn resume`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    tensorboard: bool = False
    """Also write TensorBoard's files into the run directory."""
    address: str | None = None
    """Address of the Ray cluster where actors play, or auto, if the run has any; by default a new one of this
    machine."""


def main(arguments: list[str]) -> int:
    """Resume, train to the end, and show the results."""
    options = tyro.cli(ResumeOptions, prog="bootdqn resume", description=_DESCRIPTION, args=arguments)
    return finish(resume_run(options.run, Inputs(address=options.address)), tensorboard=options.tensorboard)
