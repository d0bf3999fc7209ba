"""`bootdqn train`: an agent on an environment, for several seeds."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.agent import AgentConfig
from bootdqn.errors import require_known
from bootdqn.loops.compiled import EpisodeMetrics
from bootdqn.stats import OPTIMAL_EPISODES
from bootdqn.tabular.agents import TabularAgent
from bootdqn.training import NAMED_AGENTS, TrainConfig, TrainResult, run_training

_DESCRIPTION = """Train an agent on an environment, for several seeds at once, and leave a run directory.

examples:
  bootdqn train chain:50
  bootdqn train chain:50 --agent boot --heads 10 --episodes 500 --seeds 5 --seed 0 --out runs/first
  bootdqn train chain:20,scrambled --agent thompson
  bootdqn train chain:20,features=one_hot --mask poisson --mask-per step
  bootdqn train stochastic-chain --agent psrl --episodes 2000 --seeds 10

`bootdqn list` names environments, their options, and agents. Options below show the chosen agent's defaults."""


Config = TypeVar("Config", bound=AgentConfig | TabularAgent)


@dataclass(frozen=True, kw_only=True)
class Options(Generic[Config]):
    """The command line of `bootdqn train`."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment, such as chain:50."""
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


def main(arguments: list[str]) -> int:
    """Parse, train, and show what came out."""
    agent = _agent_name(arguments)
    named = NAMED_AGENTS[agent]
    default = Options(env=tyro.MISSING, agent=agent, config=named)
    kind: Any = Options[type(named)]  # the class decides which flags there are
    options: Options[AgentConfig | TabularAgent] = tyro.cli(
        kind, prog="bootdqn train", description=_DESCRIPTION, args=arguments, default=default
    )
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
    require_known("agent", name, NAMED_AGENTS)
    return name


def _default_out(config: TrainConfig) -> Path:
    name = f"{config.env}-{config.agent_name}".replace(":", "").replace(",", "-").replace("=", "-")
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def _show(result: TrainResult) -> None:
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
