"""Trials that are ordinary runs, with a run directory and checkpoints: whoever takes one over goes on with it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

from bootdqn.envs.catalog import env_spec, make_env
from bootdqn.envs.host import is_on_host
from bootdqn.errors import require, require_known
from bootdqn.experiments.runner import Context
from bootdqn.gym_run import GymConfig, GymRun, default_config, parse_config
from bootdqn.runs.directory import lock_directory, read_json, wait_for_lock
from bootdqn.training import NAMED_AGENTS, TrainConfig, parse_train_config, resume_training, run_training

GIVEN_OTHERWISE = {"env", "agent_name", "agent", "seed", "num_seeds", "num_actors", "max_staleness_updates"}
"""Fields of a run that the command line of a sweep has its own words for, or that no trial has."""

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
    if isinstance(config, GymConfig):
        return _carry_on_host(config, path, context, begun=begun)
    hooks: dict[str, Any] = {"told_to_stop": context.should_stop, "report": context.report, "progress": False}
    if begun:
        result = resume_training(path, **hooks)
    else:
        result = run_training(config, command=command_of(config), out=path, **hooks)
    return not result.interrupted


def _carry_on_host(config: GymConfig, path: Path, context: Context, *, begun: bool) -> bool:
    def quiet(text: str) -> None:
        del text

    if begun:
        training = GymRun.resume(path, show=quiet)
    else:
        training = GymRun(config, out=path, command=command_of(config), show=quiet)

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


def default_run(env: str, agent: str) -> TrainConfig | GymConfig:
    """The run of a named agent on an environment, with the default of every field."""
    if is_on_host(env):
        return default_config(env, agent)
    require_known("agent", agent, NAMED_AGENTS)
    return TrainConfig(env=env_spec(make_env(env)), agent_name=agent, agent=NAMED_AGENTS[agent])


def command_of(config: TrainConfig | GymConfig) -> str:
    """The command that makes such a run, as a sweep of one trial."""
    default = default_run(str(config.env), config.agent_name)
    ours, usual = ({**vars(run.agent), **vars(run)} for run in (config, default))
    words = ["bootdqn", "sweep", str(config.env), "--agents", config.agent_name, "--seed", str(config.seed)]
    for name, value in ours.items():
        if name not in GIVEN_OTHERWISE and value != usual[name]:
            words += ["--set", f"{name}={setting_text(value)}"]
    return shlex.join(words)


def setting_text(value: Any) -> str:
    """A field's value as `--set` takes it."""
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
