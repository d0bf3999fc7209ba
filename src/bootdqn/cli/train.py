"""`bootdqn train`: an agent on an environment, for several seeds."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.agent import AGENTS, AgentConfig
from bootdqn.errors import require_known
from bootdqn.training import TrainConfig, TrainResult, run_training

_DESCRIPTION = """Train an agent on an environment, for several seeds at once, and leave a run directory.

examples:
  bootdqn train chain:50
  bootdqn train chain:50 --agent boot --heads 10 --episodes 500 --seeds 5 --seed 0 --out runs/first
  bootdqn train chain:20,scrambled --agent thompson
  bootdqn train chain:20,features=one_hot --mask poisson --mask-per step

`bootdqn list` names environments, their options, and agents. Options below show the chosen agent's defaults."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of `bootdqn train`."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment, such as chain:50."""
    agent: str = "boot"
    """dqn, ensemble, thompson, boot or boot+."""
    episodes: int = TrainConfig.episodes
    """Training episodes a seed."""
    num_seeds: Annotated[int, tyro.conf.arg(name="seeds")] = TrainConfig.num_seeds
    """How many independent trainings."""
    seed: int = TrainConfig.seed
    """Seed of the first; the others count up from it."""
    out: Path | None = None
    """Run directory; by default a new one under runs/."""
    config: tyro.conf.OmitArgPrefixes[AgentConfig]
    """Options that differ from the named agent's."""


def main(arguments: list[str]) -> int:
    """Parse, train, and show what came out."""
    agent = _agent_name(arguments)
    default = Options(env=tyro.MISSING, agent=agent, config=AGENTS[agent])
    options = tyro.cli(Options, prog="bootdqn train", description=_DESCRIPTION, args=arguments, default=default)
    config = TrainConfig(
        env=options.env,
        agent_name=options.agent,
        agent=options.config,
        episodes=options.episodes,
        num_seeds=options.num_seeds,
        seed=options.seed,
    )
    command = shlex.join(["bootdqn", "train", *arguments])
    result = run_training(config, command=command, out=options.out or _default_out(config))
    _show(result)
    return 130 if result.interrupted else 0


def _agent_name(arguments: list[str]) -> str:
    """The named configuration whose values are the defaults of all other flags."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", default="boot")
    name = parser.parse_known_args(arguments)[0].agent
    require_known("agent", name, AGENTS)
    return name


def _default_out(config: TrainConfig) -> Path:
    name = f"{config.env}-{config.agent_name}".replace(":", "").replace(",", "-").replace("=", "-")
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def _show(result: TrainResult) -> None:
    """A row a seed, and where everything is."""
    table = Table(title=f"{result.config.agent_name} on {result.config.env}", title_justify="left")
    for name in ("seed", "episodes", "last return", "by vote", "learned at", "by vote at"):
        table.add_column(name, justify="right")
    learned, greedy = result.episodes_to_learn(greedy=False), result.episodes_to_learn(greedy=True)
    for seed, metrics in result.metrics.items():
        returns, votes = metrics.episode_return, metrics.greedy_return
        table.add_row(
            str(seed),
            str(len(returns)),
            f"{returns[-1]:.4g}",
            f"{votes[-1]:.4g}",
            str(learned[seed] or "-"),
            str(greedy[seed] or "-"),
        )
    console = Console()
    console.print(table)
    console.print(f"learned at: the 100th optimal episode (return {result.env.solved_return:g})", style="dim")
    print(f"run directory: {result.path}")
