"""Runs the trials of a sweep that have no result yet, and collects all results in one directory.

sweep.json           experiment, preset, command, versions, git revision
trials/NAME.json     one finished trial: its configuration, its rows, versions and how long it took
failed/NAME.json     one failed trial: its configuration and why it failed
results.csv          the rows of all finished trials, in the order of the sweep
status.json          the state of the sweep, for `bootdqn sweep --status`
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from bootdqn.errors import UserError, require
from bootdqn.experiments.engine.experiment import Cost, CsvRow, Executor, Experiment, ResultRow, Trial, Work
from bootdqn.runs.directory import (
    claim_directory,
    locked_directory,
    provenance,
    read_table,
    write_atomically,
    write_json,
)
from bootdqn.runs.progress import SweepProgress, stop_on_signal
from bootdqn.runs.records import loop_of

_SECONDS_BETWEEN_STATUS_UPDATES = 1.0


class SweepEnd(NamedTuple):
    """What a sweep left behind: whether it is complete, and which trials failed."""

    complete: bool
    """Whether every trial has its result."""
    failed: dict[str, str]
    """Why trials failed, by their names."""


def run_sweep(
    experiment: Experiment,
    trials: Sequence[Trial],
    out: Path,
    *,
    about: Mapping[str, str],
    command: str,
    executor: Executor,
    show: Callable[[str], None] = print,
) -> SweepEnd:
    """Run the trials of a sweep that have no result yet; Ctrl-C ends it in good order.

    A trial that fails does not keep others from finishing.

    Args:
        experiment: the experiment that the trials belong to.
        trials: the trials of the sweep.
        out: the directory of the sweep; trials that have their result there are not run again.
        about: what distinguishes this sweep from others that could be in that directory.
        command: the command that asked for the sweep, for the record.
        executor: the engine that carries out the trials.
        show: takes the announcement of how much there is to do.
    """
    out = out.absolute()
    _require_same_sweep(out, about)
    with locked_directory(out, "sweep"):
        _record_sweep(out, about, command)
        finished = _collect(experiment, trials, out)
        costs, failed = _estimate(experiment, [trial for trial in trials if trial.name not in finished], out)
        missing = {trial.name: trial for trial in trials if trial.name in costs}
        show(_announce(len(trials), len(finished), list(costs.values()), executor))
        weights = {name: cost.core_seconds for name, cost in costs.items()}
        work = Work(experiment.run, list(missing.values()), list(costs.values()), out)
        with stop_on_signal() as should_stop, SweepProgress(experiment.name, weights) as bar:
            status = _StatusFile(out / "status.json", bar, len(trials), len(finished), failed)
            status.write()

            def report(name: str, share: float) -> None:
                bar.update(name, share)
                status.write()

            with closing(executor.execute(work, should_stop, report)) as outcomes:
                for outcome in outcomes:
                    trial = missing[outcome.trial]
                    if outcome.rows is None:
                        failed[trial.name] = outcome.error
                        _save_failure(out, trial, outcome.error, outcome.details)
                    else:
                        finished[trial.name] = outcome.rows
                        _save(out, trial, outcome.rows, round(outcome.seconds, 1))
                        _write_results(out, experiment, trials, finished)
                    bar.finish(trial.name, failed=outcome.rows is None)
                    status.write()
            status.write(ended=True)
    return SweepEnd(len(finished) == len(trials), failed)


def find_results(
    experiment: Experiment,
    trials: Sequence[Trial],
    out: Path,
    *,
    about: Mapping[str, str],
    command: str,
    show: Callable[[str], None] = print,
) -> bool:
    """Collect the results that there are without running anything; return whether they are complete.

    This also works while the sweep is running in another process.

    Args:
        experiment: the experiment that the trials belong to.
        trials: the trials of the sweep.
        out: the directory of the sweep.
        about: what distinguishes this sweep from others that could be in that directory.
        command: the command that asked for the results, for the record.
        show: takes a line that says how many results there are.
    """
    require(
        (out / "sweep.json").exists() or any(experiment.find(trial.config, out) is not None for trial in trials),
        f"there is nothing to draw in {out}: none of {len(trials)} trials has a result; leave out --only-draw",
    )
    _require_same_sweep(out, about)
    _record_sweep(out, about, command)
    finished = _collect(experiment, trials, out)
    show(f"{len(trials)} trials, {len(finished)} of them finished")
    return len(finished) == len(trials)


def read_results(out: Path) -> list[CsvRow]:
    """Read the rows of the `results.csv` of a sweep."""
    path = out / "results.csv"
    require(path.is_file(), f"{out} holds no results.csv; run the sweep first")
    return [*read_table(path)]


def _estimate(
    experiment: Experiment, trials: Sequence[Trial], out: Path
) -> tuple[dict[str, Cost], dict[str, str]]:
    """Return the costs of the trials that can be run, and the errors of those that cannot, by name."""
    costs: dict[str, Cost] = {}
    failed: dict[str, str] = {}
    for trial in trials:
        try:
            costs[trial.name] = experiment.cost(trial.config)
        except UserError as error:
            failed[trial.name] = str(error)
            _save_failure(out, trial, str(error), "")
    return costs, failed


def _announce(num_trials: int, num_finished: int, costs: Sequence[Cost], executor: Executor) -> str:
    """Say how much there is to do for the trials that are not finished and have these costs."""
    text = f"{num_trials} trials, {num_finished} of them finished"
    if not costs:
        return text
    number = executor.fit(costs)
    needed = sum(sorted((cost.bytes for cost in costs), reverse=True)[:number])
    seconds = [cost.core_seconds for cost in costs]
    minutes = max(sum(seconds) / executor.cores, max(cost.least_seconds for cost in costs)) / 60
    time_needed = f"{minutes:.1f} min" if minutes < 600 else f"{minutes / 1440:,.1f} days"
    text = f"{text}; the rest takes about {time_needed} at most, and {needed / 1e6:,.0f} MB of memory"
    disk = sum(cost.disk_bytes for cost in costs)
    if disk:
        text += f" and {disk / 1e9:,.1f} GB of disk"
    return "\n".join([text, *dict.fromkeys(cost.note for cost in costs if cost.note)])


class _StatusFile:
    """Keeps `status.json` up to date, so that another terminal can show the state of the sweep."""

    def __init__(self, path: Path, bar: SweepProgress, num_trials: int, num_found: int, failed: dict[str, str]):
        self._path, self._bar = path, bar
        self._num_trials, self._num_found, self._failed = num_trials, num_found, failed
        self._written = 0.0

    def write(self, *, ended: bool = False) -> None:
        """Write the state of the sweep, unless that was done a moment ago and the sweep has not ended."""
        if not ended and time.monotonic() - self._written < _SECONDS_BETWEEN_STATUS_UPDATES:
            return
        self._written = time.monotonic()
        running, done = self._bar.running(), self._num_found + self._bar.num_finished
        status = {
            "updated": time.time(),
            "ended": ended,
            "trials": self._num_trials,
            "done": done,
            "running": {} if ended else running,
            "failed": self._failed,
            "eta_seconds": None if ended else self._bar.eta_seconds(),
        }
        write_json(self._path, status)


def _require_same_sweep(out: Path, about: Mapping[str, str]) -> None:
    """Make `out` a directory for this sweep; refuse one that holds something else."""
    path = out / "sweep.json"
    if not path.exists():
        claim_directory(out)
        return
    try:
        record = json.loads(path.read_text())
        found = {"experiment": record["experiment"]}
        found |= {"preset": record["preset"]} if "preset" in record else {}
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} cannot be read; choose another --out") from None
    require(found == about, f"{out} holds {_words(found)}, not {_words(about)}; choose another --out")


def _words(about: Mapping[str, str]) -> str:
    return about["experiment"] + (f" with preset {about['preset']}" if "preset" in about else "")


def _record_sweep(out: Path, about: Mapping[str, str], command: str) -> None:
    """Write `sweep.json`, unless the sweep was begun earlier."""
    if not (out / "sweep.json").exists():
        write_json(out / "sweep.json", {**about, "command": command, **provenance()})


def _collect(experiment: Experiment, trials: Sequence[Trial], out: Path) -> dict[str, list[ResultRow]]:
    """Return the results that this or another sweep has left, by trial, and write them to `results.csv`."""
    finished = {trial.name: rows for trial in trials if (rows := _load(out, trial)) is not None}
    for trial in trials:
        if trial.name not in finished and (rows := experiment.find(trial.config, out)) is not None:
            finished[trial.name] = rows
            _save(out, trial, rows, None)
    _write_results(out, experiment, trials, finished)
    return finished


def _load(out: Path, trial: Trial) -> list[ResultRow] | None:
    """Return the rows of a trial, or None if it is not finished."""
    path = out / "trials" / f"{trial.name}.json"
    try:
        record = json.loads(path.read_text())
        config, rows = record["config"], [{**row} for row in record["rows"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; remove it to run that trial again") from None
    require(
        is_same(trial.config, config),
        f"{path} was made with another configuration; choose another --out, or remove the file to run it again",
    )
    return rows


def _save(out: Path, trial: Trial, rows: list[ResultRow], seconds: float | None) -> None:
    """Record a finished trial; `seconds` is None if another sweep ran it."""
    record = {"config": _as_json(dataclasses.asdict(trial.config)), "rows": rows, "seconds": seconds}
    write_json(out / "trials" / f"{trial.name}.json", record | provenance())
    (out / "failed" / f"{trial.name}.json").unlink(missing_ok=True)


def _save_failure(out: Path, trial: Trial, error: str, details: str) -> None:
    """Record why a trial failed; the next run of the sweep tries it again."""
    record = {"config": _as_json(dataclasses.asdict(trial.config)), "error": error}
    record |= {"details": details} if details else {}
    write_json(out / "failed" / f"{trial.name}.json", record | provenance())


def is_same(config: Any, record: Mapping[str, Any]) -> bool:
    """Return whether a JSON record describes this configuration; missing fields count as their defaults."""
    if "agent_name" in record:  # of a run: older records do not name their loop
        record = {"loop": loop_of(record), **record}
    fields = {field.name: field.default for field in dataclasses.fields(config)}

    def same(name: str) -> bool:
        value = getattr(config, name)
        if name not in record:
            return value == fields[name]
        return is_same(value, record[name]) if dataclasses.is_dataclass(value) else _as_json(value) == record[name]

    return record.keys() <= fields.keys() and all(map(same, fields))


def _as_json(value: Any) -> Any:
    """Return a value as it would be read back from a JSON file."""
    return json.loads(json.dumps(value))


def _write_results(
    out: Path, experiment: Experiment, trials: Sequence[Trial], finished: dict[str, list[ResultRow]]
) -> None:
    """Write the rows of all finished trials to `results.csv`, in the order of the sweep."""
    rows = [
        {"trial": trial.name, **experiment.describe(trial.config), **row}
        for trial in trials
        if trial.name in finished
        for row in finished[trial.name]
    ]
    for row in rows:
        require(
            row.keys() == rows[0].keys(),
            f"{row['trial']} in {out / 'trials'} has other columns than {rows[0]['trial']}; one was written by "
            "another version: remove its file to run it again",
        )
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_atomically(out / "results.csv", text.getvalue().encode())
