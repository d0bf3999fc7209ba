"""`bootdqn list` shows the environments, agents and experiments that the command line knows."""

from __future__ import annotations

import dataclasses
from typing import get_args, get_type_hints

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.core.config import AGENTS, AgentConfig
from bootdqn.envs.registry import ENVS
from bootdqn.experiments.registry import EXPERIMENTS
from bootdqn.tabular.agents import TABULAR_AGENTS, TabularAgent


def main(arguments: list[str]) -> int:
    """Print environments with their options, agents with their differences, and experiments."""
    tyro.cli(_show, prog="bootdqn list", args=arguments)
    return 0


def _show() -> None:
    """List environments, agents and experiments.

    example: bootdqn list
    """
    console = Console()
    for name, entry in ENVS.items():
        console.print(f"[bold]{name}[/bold]  {entry.summary}; for example [cyan]{entry.example}[/cyan]")
        table = Table(box=None, padding=(0, 2))
        for heading in ("option", "default", "values"):
            table.add_column(heading)
        kinds = get_type_hints(entry.make)
        for field in dataclasses.fields(entry.make):
            if field.name != entry.size_field:
                values = ", ".join(get_args(kinds[field.name])) or kinds[field.name].__name__
                table.add_row(field.name, str(field.default).lower(), values)
        console.print(table)
        for preset, options in entry.presets.items():
            console.print(f"  {preset}: " + ", ".join(f"{option}={value}" for option, value in options.items()))
        console.print(f"options follow: [cyan]{entry.example},{entry.example_options}[/cyan]\n")
    console.print(
        "[bold]any environment of Gymnasium[/bold] with discrete actions, for example [cyan]CartPole-v1[/cyan]"
    )
    console.print("[bold]atari[/bold]  Atari games; for example [cyan]atari:breakout[/cyan]\n")
    table = Table(title="deep agents", title_justify="left", box=None, padding=(0, 2))
    table.add_column("name", style="bold")
    table.add_column("differs from boot in")
    for name, config in AGENTS.items():
        table.add_row(name, ", ".join(_changes(config, AGENTS["boot"])) or "-")
    console.print(table)
    table = Table(title="\ntabular baselines", title_justify="left", box=None, padding=(0, 2))
    table.add_column("name", style="bold")
    table.add_column("is")
    for name, agent in TABULAR_AGENTS.items():
        summary = (type(agent).__doc__ or "").partition("\n")[0]
        table.add_row(name, "; ".join([summary.rstrip("."), *_changes(agent, type(agent)())]))
    console.print(table)
    table = Table(title="\nexperiments (bootdqn reproduce NAME)", title_justify="left", box=None, padding=(0, 2))
    table.add_column("name", style="bold")
    table.add_column("shows")
    for experiment in EXPERIMENTS.values():
        table.add_row(experiment.name, experiment.summary)
    console.print(table)


def _changes(config: AgentConfig | TabularAgent, usual: AgentConfig | TabularAgent) -> list[str]:
    """List the fields in which two configurations of one class differ."""
    names = [field.name for field in dataclasses.fields(config)]
    return [f"{n}={getattr(config, n)}" for n in names if getattr(config, n) != getattr(usual, n)]
