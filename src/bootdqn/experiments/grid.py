"""Sweeps of one's own: environments x agents x values of fields x seeds, every trial an ordinary run."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean, stdev
from typing import Any, get_args, get_origin, get_type_hints

from bootdqn.agent import AgentConfig
from bootdqn.envs.atari import is_atari
from bootdqn.envs.host import make_envs
from bootdqn.errors import UserError, require, require_known
from bootdqn.experiments.atari.run import cost as atari_cost
from bootdqn.experiments.learning import training_cost
from bootdqn.experiments.recorded import GIVEN_OTHERWISE, carry_on, default_run, setting_text
from bootdqn.experiments.regret import regret_cost
from bootdqn.experiments.runner import Context, Cost, CsvRow, Experiment, Row, Trial
from bootdqn.gym_run import GymConfig
from bootdqn.loops.host import HostTraining
from bootdqn.runs.directory import read_json, read_table
from bootdqn.training import TrainConfig

_SECONDS_PER_STEP = 2.5e-3
"""On a Gymnasium environment, with the default configuration on one core (docs/gymnasium.md)."""
_LONGEST_NAME = 180
"""Of a trial: most file systems allow 255, and files that are being written have longer names."""
_LAST_EPISODES = 100
"""Over which returns are averaged."""
Config = TrainConfig | GymConfig


def make_grid(
    envs: Sequence[str], agents: Sequence[str], seeds: Sequence[int], settings: Sequence[str]
) -> list[Trial]:
    """A trial for every combination, seeds last.

    Args:
        envs: names of environments.
        agents: named agents.
        seeds: of everything, one a trial.
        settings: `field=value,value`, of the run's configuration or of the agent's; layers are `64x64`.
    """
    require(bool(agents), "name an agent, as in: --agents boot dqn")
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
        for env, agent, chosen, seed in product(envs, agents, product(*fields), seeds)
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
    config = default_run(env, agent)
    of_run = {f.name for f in dataclasses.fields(config)} - GIVEN_OTHERWISE
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
    """`text` as the type of a field; the field itself says later which values will do."""
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
    """The sweep of the trials that `make_grid` made with these settings."""
    names = [setting.partition("=")[0] for setting in settings]

    def describe(config: Config) -> Row:
        values = vars(config.agent) | vars(config)
        chosen = {name: setting_text(values[name]) for name in names}
        return {"env": config.env, "agent": config.agent_name, **chosen, "seed": config.seed}

    return Experiment(
        name="sweep",
        summary="",
        sweep=lambda preset: list(trials),
        run=run,
        describe=describe,
        cost=cost,
        plot=lambda rows, stem: summary_table(rows),
    )


def run(config: Config, context: Context) -> list[Row] | None:
    """Train to the end, from where the run stands if it was begun.

    Columns:
        episodes, steps: of training.
        last_return: mean over the last 100 training episodes.
        by_vote: what the majority of the heads collects: in the last 100 evaluations of one episode each, or on a
            Gymnasium environment in the last evaluation; empty where there was none.
        episodes_to_learn: the 100th optimal episode; empty where there was none, or optimal is not known.
        run: the run directory, in that of the sweep.
    """
    path = context.out / "runs" / context.trial
    if not carry_on(config, path, context):
        return None
    metrics, record = read_table(path / "metrics.csv"), read_json(path / "run.json")
    if isinstance(config, GymConfig):
        evaluations = [row for row in read_table(path / "evaluations.csv") if row["policy"] == "vote"]
        steps, learned = record["steps"], None
        by_vote = float(evaluations[-1]["mean_return"]) if evaluations else None
    else:
        steps = int(metrics[-1]["steps"])
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


def cost(config: Config) -> Cost:
    """What a trial takes."""
    if isinstance(config, TrainConfig):
        return training_cost(config) if isinstance(config.agent, AgentConfig) else regret_cost(config)
    if config.env is not None and is_atari(config.env):
        return atari_cost(config)
    envs = make_envs(str(config.env), config.num_envs, "sync")
    needed = HostTraining(envs, config.agent, seed=config.seed, steps=config.steps).memory_bytes()
    envs.close()
    seconds = config.steps * _SECONDS_PER_STEP
    return Cost(core_seconds=seconds, least_seconds=seconds, bytes=needed)


def summary_table(rows: Sequence[CsvRow]) -> str:
    """Every setting over its seeds, in Markdown: mean and standard deviation."""
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
