"""`bootdqn evaluate`: how well the model of a run does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.loops.evaluate import Evaluation, policy_name
from bootdqn.model import BootstrappedDQN, Policy
from bootdqn.runs.directory import provenance, write_json

_DESCRIPTION = """Let the model of a run, or of a model file, play.

examples:
  bootdqn evaluate runs/cartpole
  bootdqn evaluate runs/cartpole --model best --policy mean --episodes 20
  bootdqn evaluate runs/cartpole --report-card"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of `bootdqn evaluate`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run directory on a Gymnasium environment, or a model file."""
    model: Literal["last", "best"] = "last"
    """Which of a run's models: the last, or that with the best evaluation by vote."""
    episodes: int = 100
    """How many; of every policy, with --report-card."""
    policy: Policy = "vote"
    """What most heads prefer, what is best on average over heads, or what one head prefers."""
    head: int = 0
    """Which one, for --policy head."""
    report_card: bool = False
    """The vote, the mean and every head alone."""
    seed: int = 0
    """Of the episodes."""
    json: Path | None = None
    """Also write what came out to this file."""


def main(arguments: list[str]) -> int:
    """Load, play, and show."""
    options = tyro.cli(Options, prog="bootdqn evaluate", description=_DESCRIPTION, args=arguments)
    path = options.run / "models" / f"{options.model}.safetensors" if options.run.is_dir() else options.run
    model = BootstrappedDQN.load(path)
    if options.report_card:
        found = model.report_card(options.episodes, seed=options.seed)
        show_report_card(f"{options.episodes} episodes each", found)
        returns = {policy_name(e.policy): e.returns for e in found}
    else:
        name = f"head {options.head}" if options.policy == "head" else options.policy
        played = model.evaluate(options.episodes, options.policy, head=options.head, seed=options.seed)
        returns = {name: played}
        print(
            f"{model.config.env}, {options.episodes} episodes by {name}: mean {played.mean():.2f}, "
            f"std {played.std():.2f}, from {played.min():g} to {played.max():g}"
        )
    if options.json is not None:
        command = shlex.join(["bootdqn", "evaluate", *arguments])
        record = {"command": command, "returns": {name: values.tolist() for name, values in returns.items()}}
        write_json(options.json, record | provenance())
    return 0


def show_report_card(title: str, found: Sequence[Evaluation], head_steps: Sequence[int] = ()) -> None:
    """A row a policy: what it collects, how far heads disagree on its way, what share of the data is its own."""
    table = Table(title=f"head report card, {title}", title_justify="left")
    for name in (
        "policy",
        "mean return",
        "least",
        "largest",
        "vote entropy",
        *(["share of data"] if head_steps else []),
    ):
        table.add_column(name, justify="left" if name == "policy" else "right")
    total = max(sum(head_steps), 1)
    for e in found:
        cells = [
            policy_name(e.policy),
            f"{np.mean(e.returns):.4g}",
            f"{e.returns.min():.4g}",
            f"{e.returns.max():.4g}",
        ]
        cells.append(f"{e.entropy:.2f}")
        if head_steps:
            cells.append(f"{head_steps[e.policy] / total:.0%}" if e.policy >= 0 else "")
        table.add_row(*cells)
    Console().print(table)
