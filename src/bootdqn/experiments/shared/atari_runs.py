"""Runs on Atari games that several experiments can use.

Every trial is an ordinary run with a run directory and checkpoints, in `atari-runs` beside the sweep's directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bootdqn.envs.atari import protocol_line
from bootdqn.experiments.engine.cost import estimate_cost
from bootdqn.experiments.engine.experiment import Context, Experiment, Preset, ResultRow, Trial
from bootdqn.experiments.engine.resumable_runs import is_finished, require_same, run_or_resume
from bootdqn.runs.config import RunConfig, default_config
from bootdqn.runs.directory import read_json, read_table

ACTION_REPEAT = 4
"""Frames per step."""
_QUICK_AGENT: dict[str, Any] = {
    "epsilon_anneal_steps": 10_000,
    "replay_capacity": 100_000,
    "learning_start_steps": 2_000,
    "target_period_updates": 250,
}
"""Schedules for runs of 100,000 steps, a five-hundredth of the paper's.

Epsilon is annealed over the first tenth of the run, where the paper takes a fiftieth, and the target network is at
most 1,000 steps old.
"""
_SMOKE_AGENT: dict[str, Any] = {
    "hidden": (16,),
    "batch_size": 8,
    "epsilon_anneal_steps": 100,
    "replay_capacity": 1_000,
    "learning_start_steps": 50,
    "target_period_updates": 10,
}
_SCHEDULES: dict[Preset, tuple[dict[str, Any], dict[str, Any]]] = {
    "smoke": (
        _SMOKE_AGENT,
        {"steps": 160, "evaluate_every_steps": 80, "evaluation_steps": 80},
    ),
    "quick": (
        _QUICK_AGENT,
        {
            "steps": 100_000,
            "evaluate_every_steps": 10_000,
            "evaluation_steps": 10_000,
            "checkpoint_every_steps": 20_000,
        },
    ),
    "paper": ({}, {}),
}


def atari_trial(
    game: str, agent: str, preset: Preset, seed: int, *, schedule: Mapping[str, int] | None = None, **options: Any
) -> Trial:
    """Make the trial of one agent on one game.

    Args:
        game: the name of the game's ROM.
        agent: the name of the agent.
        preset: the preset, which decides the schedules.
        seed: the seed of the run.
        schedule: fields of the run's configuration that differ from the preset's.
        options: fields of the agent's configuration that differ from those of the named agent.
    """
    of_agent, of_run = _SCHEDULES[preset]
    config = default_config(f"atari:{game}", agent)
    if preset == "smoke":
        of_agent = {**of_agent, "num_heads": min(2, config.deep.num_heads)}
    agent_config = replace(config.agent, **{**of_agent, **options})
    config = replace(config, **{**of_run, **(schedule or {})}, seed=seed, agent=agent_config)
    return Trial(_run_name(config), config)


def _run_name(config: RunConfig) -> str:
    """Return the name of the run's directory, which distinguishes it from other Atari runs."""
    game = str(config.env).partition(":")[2].replace(",", "-")
    agent = config.deep
    parts = [game, config.agent_name.replace("+", "-plus"), f"k{agent.num_heads}"]
    parts += [f"p{agent.mask_probability:g}"] * (agent.mask_probability < 1)
    return "-".join([*parts, f"{config.steps}steps", f"seed{config.seed}"])


def find_evaluations(config: RunConfig, out: Path) -> list[ResultRow] | None:
    """Return the evaluations of a finished run, whichever sweep ran it, or None if there is no such run.

    Columns:
        protocol: the evaluation protocol in one line.
        step: the step at which the agent was evaluated.
        frames: the number of frames until then.
        policy, episodes, mean_return, least_return, largest_return, entropy, data_share: as in `evaluations.csv`.
    """
    path = _directory(config, out)
    if not is_finished(path):
        return None
    require_same(config, path)
    protocol = protocol_line(read_json(path / "protocol.json"))
    rows = read_table(path / "evaluations.csv")
    return [
        {"protocol": protocol, "step": row["step"], "frames": ACTION_REPEAT * int(row["step"]), **row}
        for row in rows
    ]


def run_atari(config: RunConfig, context: Context) -> list[ResultRow] | None:
    """Train to the end, resuming the run if it was begun, and return its evaluations."""
    finished = run_or_resume(config, _directory(config, context.out), context)
    return find_evaluations(config, context.out) if finished else None


def _describe(config: RunConfig) -> ResultRow:
    env = str(config.env)
    return {
        "game": env.partition(":")[2].partition(",")[0],
        "agent": config.agent_name,
        "heads": config.deep.num_heads,
        "mask_probability": config.deep.mask_probability,
        "seed": config.seed,
        "steps": config.steps,
    }


atari_experiment = partial(
    Experiment, run=run_atari, describe=_describe, cost=estimate_cost, find=find_evaluations
)
"""Makes an experiment whose trials are runs on Atari games, from the other fields of `Experiment`."""


def _directory(config: RunConfig, out: Path) -> Path:
    return out.parent / "atari-runs" / _run_name(config)
