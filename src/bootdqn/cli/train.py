"""`bootdqn train`: train an agent on an environment."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.analysis.head_report import card_of
from bootdqn.analysis.stats import OPTIMAL_EPISODES
from bootdqn.cli.evaluate import show_report_card
from bootdqn.cli.flags import flag_name, with_flags, without_flags
from bootdqn.envs.registry import ENVS
from bootdqn.envs.vector import is_compiled, is_on_host, require_env
from bootdqn.errors import UserError, require_known
from bootdqn.runs.config import (
    FIELDS,
    NAMED_AGENTS,
    RunConfig,
    default_agent,
    default_config,
    default_host_config,
)
from bootdqn.runs.parts import Inputs
from bootdqn.runs.run import Run
from bootdqn.runs.seed_results import TrainResult

_DESCRIPTION = """Train an agent on an environment, and leave a run directory that can be resumed.

examples:
  bootdqn train chain:50
  bootdqn train chain:50 --agent boot --heads 10 --episodes 500 --seeds 5 --seed 0 --out runs/first
  bootdqn train chain:20,scrambled --agent thompson
  bootdqn train chain:20,features=one_hot --mask poisson --mask-per step
  bootdqn train stochastic-chain --agent psrl --episodes 2000 --seeds 10
  bootdqn train CartPole-v1 --steps 50000 --envs 4 --out runs/cartpole

`bootdqn list` names our environments, their options, and agents; any Gymnasium environment with discrete actions
will do, too, or module:callable, which makes one. Options below show the chosen agent's defaults, for the kind of
environment that is given: `bootdqn train CartPole-v1 --help` shows those for Gymnasium and Atari."""
_NO_ENV = "chain:10"
"""The environment whose options are shown where none is named."""

Config = TypeVar("Config", bound=RunConfig)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Generic[Config]):
    """The command line of `bootdqn train`: the fields of a run, and what is not part of it."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment, such as chain:50, CartPole-v1 or atari:breakout."""
    agent: str = "boot"
    """boot, boot-prior, boot+, thompson, ensemble or dqn; on our own environments also a tabular baseline, such as
    psrl. By default boot-prior on Gymnasium environments, and boot elsewhere."""
    out: Path | None = None
    """Run directory; by default a new one under runs/."""
    tensorboard: bool = False
    """Also write TensorBoard's files into the run directory."""
    address: str | None = None
    """Address of the Ray cluster where actors play, or auto; by default a new one of this machine."""
    run: tyro.conf.OmitArgPrefixes[Config]
    """Options of the run and of its agent."""


def main(arguments: list[str]) -> int:
    """Parse, train, and show the results."""
    default = _default(arguments)
    flagged_agent = with_flags(default.agent)
    fields = FIELDS["cluster" if default.loop == "host" else default.loop]
    kind = tyro.conf.OmitArgPrefixes[type(flagged_agent)]
    flagged = with_flags(replace(default, agent=flagged_agent), ("seed", "agent", *fields), agent=kind)
    options = tyro.cli(
        TrainOptions[type(flagged)],
        prog="bootdqn train",
        description=_DESCRIPTION,
        args=arguments,
        default=TrainOptions(env=tyro.MISSING, agent=default.agent_name, run=flagged),
    )
    config = without_flags(RunConfig, options.run)
    config = replace(config, env=options.env, agent=without_flags(type(default.agent), config.agent))
    run = Run(
        config,
        out=options.out or _default_out(config),
        command=shlex.join(["bootdqn", "train", *arguments]),
        inputs=Inputs(address=options.address),
    )
    return finish(run, tensorboard=options.tensorboard)


def finish(run: Run, *, tensorboard: bool = False) -> int:
    """Train to the end, and show the results."""
    try:
        complete = run.train(progress=True, tensorboard=tensorboard)
    finally:
        run.close()
    if run.evaluations is None:
        show_result(run.result)
    elif run.evaluations.last is not None:
        step, found = run.evaluations.last
        show_report_card(f"after {step:,} steps", card_of(found, run.evaluations.head_steps))
    assert run.directory is not None
    print(f"run directory: {run.directory.path}")
    if not complete:
        print(f"stopped; `bootdqn resume {run.directory.path}` continues from here")
    return 0 if complete else 130


class _Preview(NamedTuple):
    """What of a command line decides which flags there are."""

    env: str | None
    agent: str
    num_actors: int
    wants_episodes: bool


def _default(arguments: list[str]) -> RunConfig:
    """The run whose values are the defaults of all flags, by the environment and the agent that are named."""
    env, agent, num_actors, wants_episodes = _preview(arguments)
    require_known("agent", agent, NAMED_AGENTS)
    on_host = env is not None and is_on_host(env)
    _require_flags_of(on_host, arguments)
    if not on_host:  # what it makes of the name is said when it is made
        return default_config(_NO_ENV, agent)
    config = default_host_config(env, agent, num_actors=num_actors)
    return replace(config, evaluation_steps=0) if wants_episodes else config


def _preview(arguments: list[str]) -> _Preview:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag, default in (("--agent", ""), ("--actors", "0"), ("--out", ""), ("--evaluation-episodes", "")):
        parser.add_argument(flag, default=default)
    known, rest = parser.parse_known_args(arguments)
    names = [word for word in rest if not word.startswith("-")]
    if names and rest[0] == names[0]:  # else it is found among the values of options
        require_env(names[0])
    env = next((name for name in names if is_on_host(name)), None)
    env = env or next((name for name in names if is_compiled(name)), None)
    num_actors = int(known.actors) if known.actors.isdecimal() else 0
    agent = known.agent or default_agent(env or _NO_ENV)
    return _Preview(env, agent, num_actors, bool(known.evaluation_episodes))


def _require_flags_of(on_host: bool, arguments: list[str]) -> None:
    """Raise `UserError` for flags that only the other kind of environment has, and say what to do."""
    by_episodes, by_steps = ({*map(flag_name, FIELDS[loop])} for loop in ("compiled", "cluster"))
    for flag in [argument.partition("=")[0] for argument in arguments]:
        if on_host and flag in by_episodes:
            raise UserError(
                f"{flag} is for our own environments ({', '.join(ENVS)}); on others a run has --steps and one "
                "--seed, and `bootdqn sweep` trains several"
            )
        if not on_host and flag in by_steps:
            raise UserError(
                f"{flag} is for Gymnasium environments and Atari games; on {', '.join(ENVS)} a run has --episodes "
                "and --seeds"
            )


def _default_out(config: RunConfig) -> Path:
    name = f"{config.env}-{config.agent_name}"
    for character in ":,=/":
        name = name.replace(character, "" if character == ":" else "-")
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def show_result(result: TrainResult) -> None:
    """Print a table with one row per seed."""
    table = Table(title=f"{result.config.agent_name} on {result.config.env}", title_justify="left")
    deep = result.agent is not None
    for name in ("seed", "episodes", "last return", "regret", *(("by vote", "learned at", "by vote at") * deep)):
        table.add_column(name, justify="right")
    learned, greedy = result.episodes_to_learn(greedy=False), result.episodes_to_learn(greedy=True)
    by_seed: dict[int, Any] = {**result.metrics}
    for seed, metrics in by_seed.items():
        cells = [str(seed), str(len(metrics.episode_return)), f"{metrics.episode_return[-1]:.4g}"]
        cells.append(f"{metrics.regret.sum(dtype=float):.4g}")
        if deep:
            cells += [f"{metrics.greedy_return[-1]:.4g}", str(learned[seed] or "-"), str(greedy[seed] or "-")]
        table.add_row(*cells)
    notes = [
        f"regret: what all actions lost in expectation, against {result.env.solved_return:g} per optimal episode"
    ]
    if deep:
        notes.append(f"learned at: the {OPTIMAL_EPISODES}th optimal episode")
    console = Console()
    console.print(table)
    console.print("; ".join(notes), style="dim")
