"""The command `bootdqn doctor`: checks an environment before a long run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bootdqn.doctor import Finding, examine
from bootdqn.envs.vector import find_source

_DESCRIPTION = """Check an environment before a long run: play it with random actions, and say what to change.

examples:
  bootdqn doctor CartPole-v1
  bootdqn doctor chain:20
  bootdqn doctor my_package.envs:make_env --steps 10000

The exit code is 1 if there are problems, and 0 if there is at most advice."""
_STYLES = {"ok": "green", "advice": "yellow", "problem": "bold red"}


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The command line of `bootdqn doctor`."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment: a name such as CartPole-v1 or chain:20, or module:callable for a function that makes one."""
    steps: int = 2000
    """Number of random steps."""
    seed: int = 0
    """Seed of the environment and of the actions."""


def main(arguments: list[str]) -> int:
    """Check an environment, and show the findings; returns 1 if there are problems."""
    options = tyro.cli(DoctorOptions, prog="bootdqn doctor", description=_DESCRIPTION, args=arguments)
    findings = examine(find_source(options.env), steps=options.steps, seed=options.seed)
    _show(options.env, findings)
    return int(any(finding.level == "problem" for finding in findings))


def _show(env: str, findings: list[Finding]) -> None:
    """Print a table with one row per finding, and a summary line."""
    table = Table(title=env, title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for level, what, text in findings:
        table.add_row(Text(level, style=_STYLES[level]), Text(what, style="bold"), Text(text))
    Console().print(table)
    counts = Counter(finding.level for finding in findings)
    text = f"{counts['ok']} ok, {counts['advice']} advice, {counts['problem']} problem"
    print(f"\n{text}" + ("; fix the problems before a long run" if counts["problem"] else ""))
