"""Speed on Atari: the learner's step, the whole loop, and what limits them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax

from bootdqn.agent import AgentConfig
from bootdqn.envs.atari import AtariEnvs
from bootdqn.loops.host import HostTraining
from bootdqn.memory import keep_large_blocks


class AtariSpeed(NamedTuple):
    """What one agent takes on this machine."""

    step_seconds: float
    """To act, step the game and store; without learning."""
    update_seconds: float
    """To sample a batch and learn from it."""
    learner_bytes: int
    """Of parameters, target parameters and optimizer."""


def measure_atari(agent: AgentConfig, *, updates: int, steps: int = 100) -> AtariSpeed:
    """Time steps and updates of an agent on Breakout, one slot."""
    keep_large_blocks()
    envs = AtariEnvs("atari:breakout")
    quiet = replace(agent, learning_start_steps=2**31 - 1, replay_capacity=max(1000, agent.batch_size))
    training = HostTraining(envs, quiet, seed=0, steps=1000)
    frames = training.frames
    assert frames is not None
    training.begin()
    step_seconds = _mean_seconds(training.tick, steps)

    def update() -> None:
        training.update_from_frames(frames, 0)
        jax.block_until_ready(training.learned)

    update_seconds = _mean_seconds(update, updates)
    envs.close()
    return AtariSpeed(step_seconds, update_seconds, training.memory_bytes() - frames.memory_bytes)


def _mean_seconds(function: Callable[[], object], count: int) -> float:
    """Of so many calls, after one to warm up."""
    function()
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count
