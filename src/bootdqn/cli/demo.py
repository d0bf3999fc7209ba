"""The command `bootdqn demo`: shows in a few minutes what deep exploration is good for."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.analysis.stats import OPTIMAL_EPISODES
from bootdqn.cli.report import main as report
from bootdqn.cli.watch import main as watch
from bootdqn.core.config import AGENTS, AgentConfig
from bootdqn.envs.registry import make_env
from bootdqn.errors import require
from bootdqn.plots.runs import save_comparison
from bootdqn.runs.config import RunConfig
from bootdqn.runs.run import Run
from bootdqn.runs.seed_results import TrainResult

_DESCRIPTION = """Train bootstrapped DQN and its shallow relatives on a problem that needs deep exploration.

example:
  bootdqn demo --out demo-run"""
_DEEP = "boot-prior"
_AGENTS = {
    _DEEP: "a head per episode",
    "thompson": "a head per step",
    "ensemble": "majority of heads",
    "dqn": "epsilon-greedy",
}
"""The agents of the demo, and how each explores."""
_COMMAND = ["bootdqn", "demo"]


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The command line of `bootdqn demo`."""

    env: str = "deep_sea:20"
    """Environment to train on."""
    episodes: int = 500
    """Training episodes per seed."""
    num_seeds: Annotated[int, tyro.conf.arg(name="seeds")] = 5
    """Number of seeds of every agent."""
    out: Path = Path("demo-run")
    """Directory for the runs, the figure and the report; an earlier demo there is replaced."""


def main(arguments: list[str]) -> int:
    """Train the four agents, then make a table, a figure, a video and a report page."""
    options = tyro.cli(DemoOptions, prog="bootdqn demo", description=_DESCRIPTION, args=arguments)
    make_env(options.env)  # nothing is replaced for a demo that cannot run
    configs = [
        RunConfig(
            loop="compiled",
            env=options.env,
            agent_name=name,
            agent=agent,
            episodes=options.episodes,
            num_seeds=options.num_seeds,
        )
        for name, agent in demo_agents().items()
    ]
    _clear(options.out)
    results: dict[str, TrainResult] = {}
    for config in configs:
        name = config.agent_name
        command = shlex.join([*_COMMAND, *arguments])
        run = Run(config, out=options.out / name, command=command)
        complete = run.train(progress=True)
        results[name] = run.result
        if not complete:
            print(f"interrupted; partial results are in {options.out}")
            return 130
    _show(results)
    _draw(options.out / "demo", results)
    print(f"figure: {options.out / 'demo.png'}")
    print(f"runs:   {options.out}/{{{','.join(_AGENTS)}}}")
    suffix = "mp4" if find_spec("imageio_ffmpeg") else "gif"
    watch([str(options.out / _DEEP), "--out", str(options.out / _DEEP / f"watch.{suffix}")])
    return report([str(options.out), "--out", str(options.out / "report.html")])


def demo_agents() -> dict[str, AgentConfig]:
    """Make the agents of the demo, which have the same heads and replay, and differ in who acts.

    The prior's scale is the best of 1, 2 and 5 for each, on other seeds (results/demo-tuning).
    """
    deep = replace(AGENTS[_DEEP], num_heads=10, batch_size=64, prior_scale=1.0)
    names = ("epsilon_start", "epsilon_end", "epsilon_anneal_steps", "num_heads")
    return {
        _DEEP: deep,
        "thompson": replace(deep, acting="head_per_step", prior_scale=5.0),
        "ensemble": replace(deep, acting="vote"),
        "dqn": replace(deep, **{name: getattr(AGENTS["dqn"], name) for name in names}),
    }


def _clear(out: Path) -> None:
    """Remove an earlier demo; refuse to remove anything else."""
    if not out.exists():
        return
    require(out.is_dir(), f"{out} is a file; choose another --out")
    files = {out / name for name in ("demo.png", "demo.svg", "report.html")}
    for entry in set(out.iterdir()) - files:
        require(_is_demo_run(entry), f"{out} holds {entry.name}, not an earlier demo's; choose another --out")
    shutil.rmtree(out)


def _is_demo_run(path: Path) -> bool:
    """Whether a run directory was made by a demo."""
    try:
        command = shlex.split(json.loads((path / "run.json").read_text())["command"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return command[: len(_COMMAND)] == _COMMAND


def _show(results: dict[str, TrainResult]) -> None:
    """Print in how many seeds every agent learned, and when."""
    config = next(iter(results.values())).config
    title = f"{config.env}, {config.num_seeds} seeds, {config.episodes} episodes"
    table = Table(title=title, title_justify="left")
    for heading in ("agent", "explores by"):
        table.add_column(heading)
    for heading in ("learned", "at episode", "by vote", "at episode"):
        table.add_column(heading, justify="right")
    for name, result in results.items():
        cells = []
        for greedy in (None, True):
            episodes = list(result.episodes_to_learn(greedy=greedy).values())
            learned = sum(e is not None for e in episodes)
            # A seed that did not learn counts as later than all others, so the median may be one of those.
            median = np.median([np.inf if e is None else e for e in episodes])
            when = f"{median:.0f}" if np.isfinite(median) else f"> {config.episodes}"
            cells += [f"{learned}/{len(episodes)}", when]
        table.add_row(name, _AGENTS[name], *cells)
    console = Console()
    console.print(table)
    console.print(
        f"learned: seeds with {OPTIMAL_EPISODES} optimal training episodes (for dqn, which dithers, optimal "
        "evaluations without dithering); at episode: the median over seeds of the last of these; by vote: the "
        "same for evaluations by the majority of heads, one after every training episode",
        style="dim",
    )


def _draw(stem: Path, results: dict[str, TrainResult]) -> None:
    config = next(iter(results.values())).config
    optimal = {name: [np.cumsum(flags) for flags in result.optimal().values()] for name, result in results.items()}
    save_comparison(stem, f"{config.env}: who finds the far reward, and keeps it?", optimal, OPTIMAL_EPISODES)
