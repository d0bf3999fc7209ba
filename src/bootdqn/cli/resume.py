"""`bootdqn resume`: go on with a run that was stopped or killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bootdqn.cli.train import finish_gym_run, show_result
from bootdqn.errors import UserError
from bootdqn.gym_run import GymRun
from bootdqn.runs.directory import read_json
from bootdqn.training import resume_training

_DESCRIPTION = """Go on with a run that was stopped or killed, from its last good checkpoint, to the same end.

example:
  bootdqn resume runs/cartpole"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of `bootdqn resume`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run directory."""
    tensorboard: bool = False
    """Also write TensorBoard's files, for a Gymnasium environment."""
    address: str | None = None
    """Of the Ray cluster where actors play, or auto, if the run has any; by default a new one of this machine."""


def main(arguments: list[str]) -> int:
    """Find out what kind of run it is, and go on."""
    options = tyro.cli(Options, prog="bootdqn resume", description=_DESCRIPTION, args=arguments)
    config = read_json(options.run / "config.json")
    if "steps" in config:
        return finish_gym_run(GymRun.resume(options.run, address=options.address), tensorboard=options.tensorboard)
    if "episodes" in config:
        result = resume_training(options.run)
        show_result(result)
        return 130 if result.interrupted else 0
    raise UserError(f"{options.run / 'config.json'} is not of this version: it has neither steps nor episodes")
