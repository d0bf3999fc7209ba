"""Sweeps over environments, agents, values of fields and seeds, in which every trial is an ordinary run."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean, stdev
from typing import Any, get_args, get_origin, get_type_hints

from bootdqn.errors import UserError, require, require_known
from bootdqn.experiments.engine.cost import estimate_cost
from bootdqn.experiments.engine.experiment import Context, CsvRow, Experiment, ResultRow, Trial
from bootdqn.experiments.engine.resumable_runs import GIVEN_OTHERWISE, run_or_resume, setting_text
from bootdqn.runs.config import FIELDS, RunConfig, default_agent, default_config
from bootdqn.runs.directory import read_json, read_table
from bootdqn.runs.records import PER_SEED

_LONGEST_NAME = 180
"""Most characters of a trial's name: file systems usually allow 255, and temporary files have longer names."""
_LAST_EPISODES = 100
"""The number of last episodes over which returns are averaged."""


def make_grid(
    envs: Sequence[str], agents: Sequence[str] | None, seeds: Sequence[int], settings: Sequence[str]
) -> list[Trial]:
    """Make a trial for every combination; seeds vary fastest.

    Args:
        envs: the names of environments.
        agents: the names of agents; None for the default of every environment.
        seeds: the seeds, one per trial.
        settings: texts `field=value,value` for fields of the run or of the agent; layers are given as `64x64`.
    """
    require(agents is None or bool(agents), "name an agent, as in: --agents boot dqn")
    fields: list[list[tuple[str, str]]] = []
    for setting in settings:
        name, equals, values = setting.partition("=")
        require(
            bool(equals and values), f"--set needs a field and its values, as in num_heads=5,10; got {setting!r}"
        )
        require(name not in {pairs[0][0] for pairs in fields}, f"--set {name} is given twice; values take commas")
        fields.append([(name, value) for value in values.split(",")])
    varied = {pairs[0][0] for pairs in fields if len(pairs) > 1}
    trials = [
        _trial(env, agent, dict(chosen), seed, varied)
        for env in envs
        for agent, chosen, seed in product(agents or (default_agent(env),), product(*fields), seeds)
    ]
    names = [trial.name for trial in trials]
    for name, number in Counter(names).items():
        require(number == 1, f"two trials are called {name}; is something given twice?")
        require(
            len(name) <= _LONGEST_NAME,
            f"trials have names of at most {_LONGEST_NAME} characters, and {name} has {len(name)}: vary fewer "
            "fields in one sweep",
        )
    return trials


def _trial(env: str, agent: str, chosen: Mapping[str, str], seed: int, varied: set[str]) -> Trial:
    config = default_config(env, agent)
    of_run = {*FIELDS[config.loop]} - GIVEN_OTHERWISE
    of_agent = {f.name for f in dataclasses.fields(config.agent)}
    for name in chosen:
        require_known(f"field of {agent} on {env}", name, sorted(of_run | of_agent))
    parsed = {name: _parse(config if name in of_run else config.agent, name, chosen[name]) for name in chosen}
    config = dataclasses.replace(
        config,
        agent=dataclasses.replace(config.agent, **{n: v for n, v in parsed.items() if n not in of_run}),
        seed=seed,
        **{n: v for n, v in parsed.items() if n in of_run},
    )
    parts = [
        str(config.env),
        agent,
        *(f"{name}={chosen[name]}" for name in chosen if name in varied),
        f"seed{seed}",
    ]
    return Trial("-".join(re.sub(r"[^\w.+=-]", "-", part.replace(":", "")) for part in parts), config)


def _parse(config: Any, name: str, text: str) -> Any:
    """Convert a text to the type of a field; the configuration itself checks the value later."""
    kind = get_type_hints(type(config))[name]
    if kind is bool:
        require(text in ("true", "false"), f"{name} must be true or false, got {text!r}")
        return text == "true"
    try:
        if get_origin(kind) is tuple:
            return tuple(get_args(kind)[0](part) for part in text.split("x") if part != "none")
        return kind(text) if kind in (int, float) else text
    except ValueError:
        wanted = "a whole number" if kind is int else "a number" if kind is float else "numbers, as in 64x64"
        raise UserError(f"{name} must be {wanted}, got {text!r}") from None


def grid_experiment(trials: Sequence[Trial], settings: Sequence[str]) -> Experiment:
    """Make the experiment of the trials that `make_grid` made with these settings."""
    names = [setting.partition("=")[0] for setting in settings]

    def describe(config: RunConfig) -> ResultRow:
        values = vars(config.agent) | vars(config)
        chosen = {name: setting_text(values[name]) for name in names}
        return {"env": config.env, "agent": config.agent_name, **chosen, "seed": config.seed}

    return Experiment(
        name="sweep",
        summary="",
        sweep=lambda preset: list(trials),
        run=run_trial,
        describe=describe,
        cost=estimate_cost,
        plot=lambda rows, stem: _summary_table(rows),
    )


def run_trial(config: RunConfig, context: Context) -> list[ResultRow] | None:
    """Train to the end, resuming the run if it was begun.

    Columns:
        episodes, steps: the length of the training.
        last_return: the mean return of the last 100 training episodes.
        by_vote: the mean return of the majority vote of the heads, in the last 100 evaluations of one episode each
            or, on a Gymnasium environment, in the last evaluation; empty if there was none.
        episodes_to_learn: the 100th optimal episode; empty if there was none, or if the optimum is not known.
        run: the run directory, relative to the directory of the sweep.
    """
    path = context.out / "runs" / context.trial
    if not run_or_resume(config, path, context):
        return None
    metrics, record = read_table(path / "metrics.csv"), read_json(path / "run.json")
    if config.loop not in PER_SEED:
        evaluations = [row for row in read_table(path / "evaluations.csv") if row["policy"] == "vote"]
        steps, learned = record["steps"], None
        by_vote = float(evaluations[-1]["mean_return"]) if evaluations else None
    else:
        steps = int(metrics[-1]["step"])
        which = "greedy_episodes_to_learn" if config.dithers else "episodes_to_learn"
        learned = record.get(which, {}).get(str(config.seed))
        by_vote = _last_mean(metrics, "greedy_return") if "greedy_return" in metrics[0] else None
    return [
        {
            "episodes": len(metrics),
            "steps": steps,
            "last_return": _last_mean(metrics, "return"),
            "by_vote": by_vote,
            "episodes_to_learn": learned,
            "run": f"runs/{path.name}",
        }
    ]


def _last_mean(rows: Sequence[CsvRow], column: str) -> float | None:
    values = [float(row[column]) for row in rows[-_LAST_EPISODES:]]
    return round(fmean(values), 6) if values else None


def _summary_table(rows: Sequence[CsvRow]) -> str:
    """Make a Markdown table of the means and standard deviations over seeds of every setting."""
    columns = list(rows[0])
    what = columns[columns.index("env") : columns.index("seed")]
    groups: dict[tuple[str, ...], list[CsvRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in what), []).append(row)
    lines = [f"| {' | '.join(what)} | seeds | last return | by vote | learned |", "|---" * (len(what) + 4) + "|"]
    for values, group in groups.items():
        learned = sum(row["episodes_to_learn"] != "" for row in group)
        cells = [*values, str(len(group)), _spread(group, "last_return"), _spread(group, "by_vote"), str(learned)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(rows: Sequence[CsvRow], column: str) -> str:
    values = [float(row[column]) for row in rows if row[column] != ""]
    if not values:
        return ""
    return f"{fmean(values):.4g}" + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")
