"""Trials that are ordinary runs, with a run directory and checkpoints: whoever takes one over goes on with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bootdqn.errors import require
from bootdqn.experiments.runner import Context
from bootdqn.gym_run import GymConfig, GymRun, parse_config
from bootdqn.runs.directory import lock_directory, read_json, wait_for_lock
from bootdqn.training import TrainConfig, parse_train_config, resume_training, run_training

_LEASE_SECONDS = 120.0
"""How long a machine that is gone may still hold a lock; file servers usually wait for 90."""


def carry_on(config: TrainConfig | GymConfig, path: Path, context: Context) -> bool:
    """Train to the end, from where the run in `path` stands if it was begun; returns whether it got there."""
    if is_finished(path):
        require_same(config, path)
        return True
    wait_for_lock(path, context.should_stop, seconds=_LEASE_SECONDS)
    if context.should_stop():
        return False
    if path.exists() and not any((path / "checkpoints").glob("*.json")):  # killed before there was anything
        with lock_directory(path):
            shutil.rmtree(path)
    begun = path.exists()
    if begun:
        require_same(config, path)
    command = f"of a sweep: {context.out.name}"
    if isinstance(config, GymConfig):
        return _carry_on_host(config, path, context, command, begun=begun)
    hooks: dict[str, Any] = {"told_to_stop": context.should_stop, "report": context.report, "progress": False}
    result = resume_training(path, **hooks) if begun else run_training(config, command=command, out=path, **hooks)
    return not result.interrupted


def _carry_on_host(config: GymConfig, path: Path, context: Context, command: str, *, begun: bool) -> bool:
    def quiet(text: str) -> None:
        del text

    training = GymRun.resume(path, show=quiet) if begun else GymRun(config, out=path, command=command, show=quiet)

    def on_episode(episode: Any) -> None:
        context.report(min(1.0, episode.step / config.steps))

    try:
        return training.run(on_episode=on_episode, told_to_stop=context.should_stop)
    finally:
        training.close()


def is_finished(path: Path) -> bool:
    """Whether the run in `path` got to its end."""
    return (path / "run.json").exists() and read_json(path / "run.json").get("status") == "finished"


def require_same(config: TrainConfig | GymConfig, path: Path) -> None:
    """Refuse a run of another configuration."""
    parse = parse_config if isinstance(config, GymConfig) else parse_train_config
    found = parse(read_json(path / "config.json"), path / "config.json")
    require(found == config, f"{path} holds a run with another configuration; move it away")
