"""Runs of a second: small agents, configurations, and the processes in which they are trained and killed."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bootdqn import BootstrappedDQN
from bootdqn.core.config import GYM_AGENTS, AgentConfig
from bootdqn.envs.vector import Envs
from bootdqn.loops.host import HostLoop
from bootdqn.replay.ring import Ring
from bootdqn.runs.checkpoint import Checkpoints
from bootdqn.runs.config import RunConfig
from bootdqn.runs.parts import Inputs
from bootdqn.runs.run import Run, resume_run

TINY: dict[str, Any] = {
    "num_heads": 3,
    "hidden": (8,),
    "trunk_hidden": (),
    "batch_size": 8,
    "learning_start_steps": 20,
}
TINY_FLAGS = [
    *("--heads", "3", "--hidden", "8", "--trunk-hidden"),
    *("--batch-size", "8", "--learning-start-steps", "20"),
]
CHAIN_FLAGS = ["--heads", "2", "--hidden", "4", "--batch-size", "4", "--learning-start-steps", "8"]
TINY_PICTURES: dict[str, Any] = {
    "num_heads": 3,
    "hidden": (8,),
    "batch_size": 4,
    "replay_capacity": 3000,
    "mask_probability": 0.5,
}
RUN = [
    *("CartPole-v1", "--steps", "900", "--checkpoint-every-steps", "200", "--evaluate-every-steps", "300"),
    *("--evaluation-episodes", "1", *TINY_FLAGS),
]
"""What to train on the command line, in a second, with checkpoints and evaluations."""


def tiny(env: Any, **options: Any) -> BootstrappedDQN:
    """A small agent on any environment."""
    return BootstrappedDQN(env, **{**TINY, **options})


QUIET = Inputs(show=lambda text: None)
"""Says nothing about what is done."""


def host_loop(envs: Envs, config: AgentConfig, *, seed: int, steps: int) -> HostLoop:
    """A host loop without checkpoints."""
    return HostLoop(envs, config, seed=seed, steps=steps, checkpoint_every=2**31)


def resumed(path: Path) -> Run:
    """The run in a directory, from its last good checkpoint."""
    return resume_run(path, QUIET)


def small_run(path: Path, **fields: Any) -> Run:
    """A run of 300 steps of CartPole with a checkpoint every 100."""
    agent = dataclasses.replace(GYM_AGENTS["boot"], **TINY)
    config = {"env": "CartPole-v1", "agent": agent, "steps": 300, "checkpoint_every_steps": 100, **fields}
    return Run(RunConfig(loop="host", **config), out=path, inputs=QUIET)


def advance(run: Run, steps: int) -> None:
    """Let a run get to a step, with all that is due on the way, and die there."""
    with contextlib.suppress(Dies):
        run.train(on_episode=None, told_to_stop=lambda: _die_at(run, steps))


class Dies(BaseException):
    """Ends a run as a kill would: nothing more is written."""


def _die_at(run: Run, steps: int) -> bool:
    if run.loop.position >= steps:
        raise Dies
    return False


def ring(loop: HostLoop) -> Ring:
    """The replay of a training on vectors."""
    replay = loop.learner.learned.replay
    assert replay is not None
    return replay


def state_at_the_end(run: Path) -> tuple[dict[str, bytes], ...]:
    """Parameters, optimizer, keys and counters, and the replay, of the last checkpoint, as bytes."""
    found = Checkpoints(run).load(print)
    assert found is not None
    return tuple(
        {name: array.tobytes() for name, array in arrays.items()} for arrays in (found.arrays, *found.replays)
    )


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of the metrics of a run."""
    with (path / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def start(arguments: list[str], cache: Path, *, script: str = "", **options: Any) -> subprocess.Popen[str]:
    """Start the command line in a process that may be killed.

    Args:
        arguments: of `bootdqn`.
        cache: for compiled programs, which only processes share that may be killed: JAX does not write entries
            atomically.
        script: statements that come first, such as those that set constants of modules.
        **options: of `subprocess.Popen`.
    """
    code = f"import sys\n{script}\nfrom bootdqn.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)},
        **options,
    )


def kill_when(process: subprocess.Popen[str], condition: Callable[[], bool], number: int) -> None:
    """Send a signal to a process as soon as a condition holds."""
    deadline = time.monotonic() + 120
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
