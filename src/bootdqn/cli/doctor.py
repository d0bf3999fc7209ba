"""`bootdqn doctor`: an environment, looked at before a long run."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bootdqn.doctor import Finding, examine
from bootdqn.envs.atari import is_atari
from bootdqn.envs.host import EnvSource, is_compiled
from bootdqn.errors import UserError, require

_DESCRIPTION = """Check an environment before a long run: play it at random, and say what to change.

examples:
  bootdqn doctor CartPole-v1
  bootdqn doctor chain:20
  bootdqn doctor my_package.envs:make_env --steps 10000

The exit code is 1 if there are problems, and 0 if there is at most advice."""
_STYLES = {"ok": "green", "advice": "yellow", "problem": "bold red"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of `bootdqn doctor`."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment: a name such as CartPole-v1 or chain:20, or module:callable, which makes one."""
    steps: int = 2000
    """Random steps to take."""
    seed: int = 0
    """Seed of the environment, and of the actions."""


def main(arguments: list[str]) -> int:
    """Look, and show what was found."""
    options = tyro.cli(Options, prog="bootdqn doctor", description=_DESCRIPTION, args=arguments)
    findings = examine(find_source(options.env), steps=options.steps, seed=options.seed)
    _show(options.env, findings)
    return int(any(finding.level == "problem" for finding in findings))


def find_source(name: str) -> EnvSource:
    """What `name` means: that name, or the callable that it gives as module:callable."""
    module_name, _, attribute = name.partition(":")
    # What Gymnasium calls module:name has a version, as in ale_py:ALE/Pong-v5, and is no identifier.
    if is_compiled(name) or is_atari(name) or not attribute.isidentifier():
        return name
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: people keep environments next to their scripts
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"cannot import {module_name!r} of {name!r}: {reason}") from None
    maker: Any = getattr(module, attribute, None)
    require(callable(maker), f"{module_name!r} has no callable {attribute!r}")
    return maker


def _show(env: str, findings: list[Finding]) -> None:
    """A row a finding, and all of them in a line."""
    table = Table(title=env, title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for level, what, text in findings:
        table.add_row(Text(level, style=_STYLES[level]), Text(what, style="bold"), Text(text))
    Console().print(table)
    counts = Counter(finding.level for finding in findings)
    text = f"{counts['ok']} ok, {counts['advice']} advice, {counts['problem']} problem"
    print(f"\n{text}" + ("; mend the problems before a long run" if counts["problem"] else ""))
