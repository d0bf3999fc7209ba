"""What the Atari experiments share: configurations, runs that several of them can use, and what those cost.

A run is the ordinary one, with its directory and checkpoints, in `atari-runs` beside the directories of sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from bootdqn.bench_atari import AtariSpeed, measure_atari
from bootdqn.envs.atari import protocol_line
from bootdqn.experiments.recorded import carry_on, is_finished, require_same
from bootdqn.experiments.runner import Context, Cost, CsvRow, Experiment, Preset, Row, Trial
from bootdqn.gym_run import GymConfig, default_config
from bootdqn.loops.groups import available_cores
from bootdqn.runs.directory import read_json, read_table

ACTION_REPEAT = 4
"""Frames a step."""
_QUICK_AGENT: dict[str, Any] = {
    "epsilon_anneal_steps": 10_000,
    "replay_capacity": 100_000,
    "learning_start_steps": 2_000,
    "target_period_updates": 250,
}
"""Schedules for 100,000 steps, a five-hundredth of the paper's: the first tenth of the run anneals epsilon, where
the paper's takes a fiftieth; the target network is 1,000 steps old at most."""
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


def atari_experiment(
    *,
    name: str,
    summary: str,
    sweep: Callable[[Preset], list[Trial]],
    plot: Callable[[list[CsvRow], Path], str],
) -> Experiment:
    """An experiment whose trials are runs on Atari games."""
    return Experiment(
        name=name, summary=summary, sweep=sweep, run=run, describe=describe, cost=cost, plot=plot, find=find
    )


def atari_trial(
    game: str, agent: str, preset: Preset, seed: int, *, schedule: Mapping[str, int] | None = None, **options: Any
) -> Trial:
    """A run of an agent on a game.

    Args:
        game: the ROM's name.
        agent: a named agent.
        preset: decides schedules.
        seed: of everything.
        schedule: fields of the run's configuration that differ from the preset's.
        options: fields of the agent's configuration that differ from the named one's.
    """
    of_agent, of_run = _SCHEDULES[preset]
    config = default_config(f"atari:{game}", agent)
    if preset == "smoke":
        of_agent = {**of_agent, "num_heads": min(2, config.agent.num_heads)}
    agent_config = replace(config.agent, **{**of_agent, **options})
    config = replace(config, **{**of_run, **(schedule or {})}, seed=seed, agent=agent_config)
    return Trial(run_name(config), config)


def run_name(config: GymConfig) -> str:
    """Of its directory: what distinguishes it from other Atari runs."""
    game = str(config.env).partition(":")[2].replace(",", "-")
    agent = config.agent
    parts = [game, config.agent_name.replace("+", "-plus"), f"k{agent.num_heads}"]
    parts += [f"p{agent.mask_probability:g}"] * (agent.mask_probability < 1)
    return "-".join([*parts, f"{config.steps}steps", f"seed{config.seed}"])


def find(config: GymConfig, out: Path) -> list[Row] | None:
    """The rows of a run that has ended, wherever it was run from."""
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


def run(config: GymConfig, context: Context) -> list[Row] | None:
    """Train to the end, from where the run stands if it was begun; its evaluations are the rows.

    Columns:
        protocol: the run's card in a line.
        step, frames: at which it was evaluated.
        policy, episodes, mean_return, least_return, largest_return, entropy, data_share: see `evaluations.csv`.
    """
    return find(config, context.out) if carry_on(config, _directory(config, context.out), context) else None


def describe(config: GymConfig) -> Row:
    """What was run."""
    env = str(config.env)
    return {
        "game": env.partition(":")[2].partition(",")[0],
        "agent": config.agent_name,
        "heads": config.agent.num_heads,
        "mask_probability": config.agent.mask_probability,
        "seed": config.seed,
        "steps": config.steps,
    }


def cost(config: GymConfig) -> Cost:
    """From a benchmark of a few updates and steps on this machine."""
    agent = config.agent
    measured = _measure(agent.num_heads, agent.hidden, agent.batch_size)
    rate = 1 / (measured.step_seconds + measured.update_seconds / agent.learning_period_steps)
    evaluated = config.steps // config.evaluate_every_steps * config.evaluation_steps
    total = config.steps / rate + evaluated * measured.step_seconds
    frames = min(agent.replay_capacity, config.steps)
    # Checkpoints: up to three sets of parameters, targets and moments, and pictures at a tenth of their size.
    disk = 3 * measured.learner_bytes + frames * 84 * 84 // 10
    return Cost(
        core_seconds=total * available_cores(),
        least_seconds=total,
        bytes=measured.learner_bytes + frames * (84 * 84 + 4 * agent.num_heads + 14),
        disk_bytes=disk,
        device_bytes=2 * measured.learner_bytes,  # the gradient, too, and what it is made from
        note=f"measured here with {agent.num_heads} heads: {1e3 * measured.update_seconds:.0f} ms an update, "
        f"{rate:.0f} steps/s, so {total / 86400:,.2f} days for {config.steps:,} steps",
    )


@cache
def _measure(num_heads: int, hidden: tuple[int, ...], batch_size: int) -> AtariSpeed:
    agent = default_config("atari:breakout", "boot").agent
    return measure_atari(replace(agent, num_heads=num_heads, hidden=hidden, batch_size=batch_size), updates=5)


def _directory(config: GymConfig, out: Path) -> Path:
    return out.parent / "atari-runs" / run_name(config)
