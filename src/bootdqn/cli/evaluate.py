"""The command `bootdqn evaluate`: returns of the model of a run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.analysis.head_report import card_of
from bootdqn.api import BootstrappedDQN, Policy
from bootdqn.errors import UserError, require
from bootdqn.loops.rollout import policy_name
from bootdqn.runs.directory import provenance, require_writable, write_json

_DESCRIPTION = """Evaluate the model of a run, or a model file.

examples:
  bootdqn evaluate runs/cartpole
  bootdqn evaluate runs/cartpole --model best --policy mean --episodes 20
  bootdqn evaluate runs/cartpole --report-card"""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The command line of `bootdqn evaluate`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of a run on a Gymnasium environment, or a model file."""
    model: Literal["last", "best"] = "last"
    """Which model of the run to use: the last one, or the one with the best evaluation by vote."""
    episodes: int = 100
    """Number of episodes; with --report-card, for every policy."""
    policy: Policy = "vote"
    """The majority vote of the heads, the greedy action of their mean values, or a single head."""
    head: int | None = None
    """Index of the head for --policy head; by default the first."""
    report_card: bool = False
    """Evaluate the vote, the mean and every head alone."""
    seed: int = 0
    """Seed of the episodes."""
    json: Path | None = None
    """Also write the results to this file."""


def main(arguments: list[str]) -> int:
    """Load a model, evaluate it, and show the results."""
    options = tyro.cli(EvaluateOptions, prog="bootdqn evaluate", description=_DESCRIPTION, args=arguments)
    require(options.head is None or options.policy == "head", "--head belongs to --policy head")
    if options.json is not None:
        require_writable(options.json)
    model = BootstrappedDQN.load(_model_file(options.run, options.model))
    head = options.head or 0
    card: dict[str, Any] = {}
    if options.report_card:
        found = model.report_card(options.episodes, seed=options.seed)
        card = card_of(found)
        show_report_card(f"{options.episodes} episodes each", card)
        returns = {policy_name(e.policy): e.returns for e in found}
    else:
        name = f"head {head}" if options.policy == "head" else options.policy
        played = model.evaluate(options.episodes, options.policy, head=head, seed=options.seed)
        returns = {name: played}
        print(
            f"{model.config.env}, {options.episodes} episodes by {name}: mean {played.mean():.2f}, "
            f"std {played.std():.2f}, from {played.min():g} to {played.max():g}"
        )
    if options.json is not None:
        command = shlex.join(["bootdqn", "evaluate", *arguments])
        record = {"command": command, "returns": {name: values.tolist() for name, values in returns.items()}}
        write_json(options.json, record | card | provenance())
    return 0


def _model_file(run: Path, name: str) -> Path:
    """The model file of a run, by its name; a run over several seeds has several, of which one must be chosen."""
    if not run.is_dir():
        return run
    path = run / "models" / f"{name}.safetensors"
    others = sorted(map(str, (run / "models").glob("*.safetensors")))
    if not path.exists() and others:
        raise UserError(f"{run} has a model for every seed; choose one, as in: bootdqn evaluate {others[0]}")
    require(path.exists(), f"no model at {path}; is {run} the directory of a run that has ended?")
    return path


def show_report_card(title: str, card: dict[str, Any]) -> None:
    """Print the returns of every policy and the heads' shares of the data, and then how similar the heads are."""
    table = Table(title=f"head report card, {title}", title_justify="left")
    shares = any(row["data_share"] is not None for row in card["policies"])
    columns = ("policy", "mean return", "least", "largest", "vote entropy")
    for name in (*columns, *(["share of data"] if shares else [])):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for row in card["policies"]:
        cells = [row["policy"], *(f"{row[f'{name}_return']:.4g}" for name in ("mean", "least", "largest"))]
        cells.append(f"{row['entropy']:.2f}")
        share = row["data_share"]
        table.add_row(*cells, *(["" if share is None else f"{share:.0%}"] if shares else []))
    console = Console()
    console.print(table)
    num_heads = len(card["correlation"])
    if num_heads > 1:
        console.print(
            f"{num_heads} heads are worth {card['effective_heads']:.2f} unrelated ones, and have the same "
            f"favourite on {card['agreement']:.1%} of {card['observations']}",
            style="dim",
        )
    if card["warning"]:
        console.print(f"warning: {card['warning']}", style="yellow")
