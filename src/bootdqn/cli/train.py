"""`bootdqn train`: an agent on an environment."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.agent import GYM_AGENTS, AgentConfig
from bootdqn.cards import card_of
from bootdqn.cli.evaluate import show_report_card
from bootdqn.envs.atari import is_atari
from bootdqn.envs.catalog import ENVS
from bootdqn.envs.host import Vectorization, is_on_host, require_env
from bootdqn.errors import UserError, require_known
from bootdqn.gym_run import GymConfig, GymRun, default_config
from bootdqn.loops.compiled import EpisodeMetrics
from bootdqn.stats import OPTIMAL_EPISODES
from bootdqn.tabular.agents import TABULAR_AGENTS, TabularAgent
from bootdqn.training import NAMED_AGENTS, TrainConfig, TrainResult, run_training

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


Config = TypeVar("Config", bound=AgentConfig | TabularAgent)


@dataclass(frozen=True, kw_only=True)
class Options(Generic[Config]):
    """The command line of `bootdqn train` for our own environments, which train several seeds at once."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment, such as chain:50 or CartPole-v1."""
    agent: str = "boot"
    """dqn, ensemble, thompson, boot or boot+; or one that sees the state, such as psrl."""
    episodes: int = TrainConfig.episodes
    """Training episodes a seed."""
    num_seeds: Annotated[int, tyro.conf.arg(name="seeds")] = TrainConfig.num_seeds
    """How many independent trainings."""
    seed: int = TrainConfig.seed
    """Seed of the first; the others count up from it."""
    out: Path | None = None
    """Run directory; by default a new one under runs/."""
    config: tyro.conf.OmitArgPrefixes[Config]
    """Options that differ from the named agent's."""


@dataclass(frozen=True, kw_only=True)
class GymOptions:
    """The command line of `bootdqn train` for Gymnasium environments and Atari games."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment, such as CartPole-v1 or atari:breakout."""
    agent: str = "boot"
    """dqn, ensemble, thompson, boot or boot+."""
    steps: int = GymConfig.steps
    """Environment steps, over all copies."""
    seed: int = GymConfig.seed
    """Of everything."""
    num_envs: Annotated[int, tyro.conf.arg(name="envs")] = GymConfig.num_envs
    """Copies of the environment, each played by its own head."""
    vectorization: Vectorization = GymConfig.vectorization
    """Copies in this process, in a process each, or the environment's own vector version."""
    evaluate_every_steps: int = GymConfig.evaluate_every_steps
    """Steps from one evaluation to the next; 0 for none."""
    evaluation_episodes: int = GymConfig.evaluation_episodes
    """Episodes an evaluation: of the vote, of the mean, and of every head."""
    evaluation_steps: int = GymConfig.evaluation_steps
    """Steps that the vote plays in an evaluation, in place of episodes; others play in the last one only."""
    evaluation_epsilon: float = GymConfig.evaluation_epsilon
    """Probability of a random action in evaluations."""
    checkpoint_every_steps: int = GymConfig.checkpoint_every_steps
    """Steps from one checkpoint to the next; all copies then start fresh episodes."""
    num_actors: Annotated[int, tyro.conf.arg(name="actors")] = GymConfig.num_actors
    """Processes in a Ray cluster that play, each with as many copies of its own; 0 to play here."""
    max_staleness_updates: int = GymConfig.max_staleness_updates
    """Updates that the parameters of actors may lack."""
    address: str | None = None
    """Of the Ray cluster where actors play, or auto; by default a new one of this machine."""
    tensorboard: bool = False
    """Also write TensorBoard's files into the run directory."""
    out: Path | None = None
    """Run directory; by default a new one under runs/."""
    config: tyro.conf.OmitArgPrefixes[AgentConfig]
    """Options that differ from the named agent's."""


def main(arguments: list[str]) -> int:
    """Parse, train, and show what came out."""
    places = [after for flag, after in pairwise(range(len(arguments))) if arguments[flag] == "--out"]
    names = [name for at, name in enumerate(arguments) if at not in places and not name.startswith("-")]
    if arguments and arguments[0] in names:  # else it is found among the values of options
        require_env(arguments[0])
    games = [name for name in names if is_atari(name)]
    on_gymnasium = any(map(is_on_host, names))
    _require_options_of(on_gymnasium, arguments)
    agents: dict[str, Any] = {**GYM_AGENTS} if on_gymnasium else NAMED_AGENTS
    agent = _agent_name(arguments)
    if on_gymnasium and agent in TABULAR_AGENTS:
        raise UserError(f"{agent} sees the state, so it is for {', '.join(ENVS)}; here are {', '.join(agents)}")
    named = agents[agent]
    kind: Any = GymOptions if on_gymnasium else Options[type(named)]  # the class decides which flags there are
    default: Any = Options(env=tyro.MISSING, agent=agent, config=named)
    if on_gymnasium:
        config = default_config(games[0] if games else None, agent)
        default = GymOptions(
            env=tyro.MISSING,
            agent=agent,
            steps=config.steps,
            evaluate_every_steps=config.evaluate_every_steps,
            # Who asks for episodes gets them.
            evaluation_steps=0 if "--evaluation-episodes" in arguments else config.evaluation_steps,
            evaluation_epsilon=config.evaluation_epsilon,
            checkpoint_every_steps=config.checkpoint_every_steps,
            config=config.agent,
        )
    options = tyro.cli(kind, prog="bootdqn train", description=_DESCRIPTION, args=arguments, default=default)
    command = shlex.join(["bootdqn", "train", *arguments])
    if on_gymnasium:
        return _train_on_gymnasium(options, command)
    config = TrainConfig(
        env=options.env,
        agent_name=options.agent,
        agent=options.config,
        episodes=options.episodes,
        num_seeds=options.num_seeds,
        seed=options.seed,
    )
    result = run_training(config, command=command, out=options.out or _default_out(config))
    show_result(result)
    return 130 if result.interrupted else 0


def _train_on_gymnasium(options: GymOptions, command: str) -> int:
    config = GymConfig(
        env=options.env,
        agent_name=options.agent,
        agent=options.config,
        steps=options.steps,
        seed=options.seed,
        num_envs=options.num_envs,
        vectorization=options.vectorization,
        evaluate_every_steps=options.evaluate_every_steps,
        evaluation_episodes=options.evaluation_episodes,
        evaluation_steps=options.evaluation_steps,
        evaluation_epsilon=options.evaluation_epsilon,
        checkpoint_every_steps=options.checkpoint_every_steps,
        num_actors=options.num_actors,
        max_staleness_updates=options.max_staleness_updates,
    )
    run = GymRun(config, out=options.out or _default_out(config), command=command, address=options.address)
    return finish_gym_run(run, tensorboard=options.tensorboard)


def finish_gym_run(run: GymRun, *, tensorboard: bool = False) -> int:
    """Train to the end, and show what came out."""
    try:
        complete = run.run(progress=True, tensorboard=tensorboard)
    finally:
        run.close()
    if run.last_evaluation is not None:
        step, found = run.last_evaluation
        committed = run.config.agent.acting == "committed_head"
        card = card_of(found, run.training.counters.head_steps if committed else ())
        show_report_card(f"after {step:,} steps", card)
    assert run.directory is not None
    print(f"run directory: {run.directory.path}")
    if not complete:
        print(f"stopped; `bootdqn resume {run.directory.path}` goes on from here")
    return 0 if complete else 130


def _require_options_of(on_gymnasium: bool, arguments: list[str]) -> None:
    """Refuse options that only the other kind of environment has, and say what to do."""
    ours, theirs = (
        {f"--{field.name.removeprefix('num_').replace('_', '-')}" for field in fields(kind)}
        for kind in (Options, GymOptions)
    )
    given = [argument.partition("=")[0] for argument in arguments]
    for flag in given:
        if on_gymnasium and flag in ours - theirs:
            raise UserError(
                f"{flag} is for our own environments ({', '.join(ENVS)}); on others a run has --steps and one "
                "--seed, and `bootdqn sweep` trains several"
            )
        if not on_gymnasium and flag in theirs - ours:
            raise UserError(
                f"{flag} is for Gymnasium environments and Atari games; on {', '.join(ENVS)} a run has --episodes "
                "and --seeds"
            )


def _agent_name(arguments: list[str]) -> str:
    """The named configuration whose values are the defaults of all other flags."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", default="boot")
    name = parser.parse_known_args(arguments)[0].agent
    require_known("agent", name, NAMED_AGENTS)
    return name


def _default_out(config: TrainConfig | GymConfig) -> Path:
    name = f"{config.env}-{config.agent_name}"
    for character in ":,=/":
        name = name.replace(character, "" if character == ":" else "-")
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def show_result(result: TrainResult) -> None:
    """A row a seed, and where everything is."""
    table = Table(title=f"{result.config.agent_name} on {result.config.env}", title_justify="left")
    deep = isinstance(result.config.agent, AgentConfig)
    for name in ("seed", "episodes", "last return", "regret", *(("by vote", "learned at", "by vote at") * deep)):
        table.add_column(name, justify="right")
    learned, greedy = result.episodes_to_learn(greedy=False), result.episodes_to_learn(greedy=True)
    for seed, metrics in result.metrics.items():
        cells = [str(seed), str(len(metrics.episode_return)), f"{metrics.episode_return[-1]:.4g}"]
        cells.append(f"{metrics.regret.sum(dtype=float):.4g}")
        if isinstance(metrics, EpisodeMetrics):
            cells += [f"{metrics.greedy_return[-1]:.4g}", str(learned[seed] or "-"), str(greedy[seed] or "-")]
        table.add_row(*cells)
    notes = [f"regret: what all actions lost in expectation, against {result.env.solved_return:g} an episode"]
    if deep:
        notes.append(f"learned at: the {OPTIMAL_EPISODES}th optimal episode")
    console = Console()
    console.print(table)
    console.print("; ".join(notes), style="dim")
    print(f"run directory: {result.path}")
    if result.interrupted:
        print(f"stopped; `bootdqn resume {result.path}` goes on from here")
