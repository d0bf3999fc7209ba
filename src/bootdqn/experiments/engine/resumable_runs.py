"""Trials that are ordinary runs with a run directory and checkpoints, so that any worker can resume them."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

from bootdqn.errors import require
from bootdqn.experiments.engine.experiment import Context
from bootdqn.runs.config import RunConfig, default_config, parse_config
from bootdqn.runs.directory import lock_directory, read_json, wait_for_lock
from bootdqn.runs.parts import Inputs
from bootdqn.runs.run import Run, resume_run

GIVEN_OTHERWISE = {
    "loop",
    "env",
    "agent_name",
    "agent",
    "seed",
    "num_seeds",
    "num_actors",
    "max_staleness_updates",
}
"""Fields of a run that `--set` does not take: a sweep has other flags for them, or no trial has them."""
_LEASE_SECONDS = 120.0
"""How long a machine that has gone may still hold a lock; file servers usually wait for 90 seconds."""


def run_or_resume(config: RunConfig, path: Path, context: Context) -> bool:
    """Train to the end, resuming the run in `path` if it was begun; return whether it is finished."""
    if is_finished(path):
        require_same(config, path)
        return True
    wait_for_lock(path, context.should_stop, seconds=_LEASE_SECONDS)
    if context.should_stop():
        return False
    if path.exists() and not any((path / "checkpoints").glob("*.json")):  # killed before its first checkpoint
        with lock_directory(path):
            shutil.rmtree(path)
    begun = path.exists()
    if begun:
        require_same(config, path)
    inputs = Inputs(show=lambda text: None)
    run = resume_run(path, inputs) if begun else Run(config, out=path, command=command_of(config), inputs=inputs)
    try:
        return run.train(told_to_stop=context.should_stop, report=context.report)
    finally:
        run.close()


def is_finished(path: Path) -> bool:
    """Return whether there is a finished run in `path`."""
    return (path / "run.json").exists() and read_json(path / "run.json").get("status") == "finished"


def require_same(config: RunConfig, path: Path) -> None:
    """Refuse a run directory that was made with another configuration."""
    found = parse_config(read_json(path / "config.json"), path / "config.json")
    require(found == config, f"{path} holds a run with another configuration; move it away")


def command_of(config: RunConfig) -> str:
    """Return the command that makes such a run, as a sweep of one trial."""
    default = default_config(str(config.env), config.agent_name)
    ours, usual = ({**vars(run.agent), **vars(run)} for run in (config, default))
    words = ["bootdqn", "sweep", str(config.env), "--agents", config.agent_name, "--seed", str(config.seed)]
    for name, value in ours.items():
        if name not in GIVEN_OTHERWISE and value != usual[name]:
            words += ["--set", f"{name}={setting_text(value)}"]
    return shlex.join(words)


def setting_text(value: Any) -> str:
    """Format the value of a field as `--set` takes it."""
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
