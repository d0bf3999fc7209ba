"""Runs a sweep: every trial that has no result yet, by an executor, into one directory.

sweep.json           experiment, preset, command, versions, git revision
trials/NAME.json     one trial: its configuration, its rows, what made them and how long that took
failed/NAME.json     one trial that failed: its configuration and why
results.csv          the rows of all trials so far, in the order of the sweep
status.json          how far the sweep is, for `bootdqn sweep --status`
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from bootdqn.errors import UserError, require
from bootdqn.progress import SweepProgress, stop_on_signal
from bootdqn.runs.directory import (
    claim_directory,
    locked_directory,
    provenance,
    read_table,
    write_atomically,
    write_json,
)

Preset = Literal["smoke", "quick", "paper"]
"""Seconds, to see that it runs; minutes, to see what comes out; or the paper's settings."""
Row = dict[str, Any]
"""One line of `results.csv`; all rows of an experiment have the same columns."""
CsvRow = Mapping[str, str]
"""The same, read back."""
_SECONDS_BETWEEN_BOARDS = 1.0


class Trial(NamedTuple):
    """One configuration of a sweep."""

    name: str
    """Unique in its sweep, and a file name."""
    config: Any
    """A frozen dataclass of numbers, texts, tuples of them, and other such."""


class Cost(NamedTuple):
    """What a trial takes at most."""

    core_seconds: float
    least_seconds: float
    """However many cores there are."""
    bytes: int
    disk_bytes: int = 0
    note: str = ""
    """What the estimate rests on."""
    device_bytes: int | None = None
    """Of `bytes`, what an accelerator holds; None for all."""
    threads: int = 1
    """That it can keep busy, with the same bits however many there are: seeds side by side."""


class Context(NamedTuple):
    """What a running trial is given."""

    should_stop: Callable[[], bool]
    """Whether to give up."""
    report: Callable[[float], None]
    """Is told which share of the trial is done."""
    pool: ThreadPoolExecutor
    """Threads for the work."""
    out: Path
    """The sweep's directory."""
    trial: str = ""
    """The trial's name."""


Run = Callable[[Any, Context], list[Row] | None]
"""(a trial's configuration, context) -> its rows, or None when it was told to stop."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What reproduces one figure or table."""

    name: str
    summary: str
    """One line for `bootdqn list`."""
    sweep: Callable[[Preset], list[Trial]]
    """Data only."""
    run: Run
    describe: Callable[[Any], Row]
    """(a trial's configuration) -> the columns that say what was run."""
    cost: Callable[[Any], Cost]
    """(a trial's configuration) -> what it takes."""
    find: Callable[[Any, Path], list[Row] | None] = lambda config, out: None
    """(a trial's configuration, the sweep's directory) -> its rows, if another sweep has left them."""
    plot: Callable[[list[CsvRow], Path], str]
    """(rows of `results.csv`, path without suffix) -> writes the figure there and returns a summary in words.

    The rows may be those of the first trials only, of a sweep that was stopped.
    """


class Outcome(NamedTuple):
    """What became of a trial that ended."""

    trial: str
    """Its name."""
    rows: list[Row] | None
    """None where it failed, or was told to stop."""
    error: str = ""
    """Why it failed, in a line."""
    details: str = ""
    """Where in the program, if that was no mistake of the user."""
    seconds: float = 0.0

    @property
    def is_cut(self) -> bool:
        """Whether it was told to stop before its end."""
        return self.rows is None and not self.error


class Work(NamedTuple):
    """Trials that are to be carried out."""

    run: Run
    """The experiment's, found by its name in another process."""
    trials: Sequence[Trial]
    costs: Sequence[Cost]
    """Of each."""
    out: Path
    """The sweep's directory, which all workers see under this name."""


class Executor(Protocol):
    """An engine that carries out trials."""

    @property
    def cores(self) -> int:
        """That it has in all."""
        ...

    def fit(self, costs: Sequence[Cost]) -> int:
        """How many trials of such costs it runs at once; raises `UserError` if there is no room for one."""
        ...

    def execute(
        self, work: Work, should_stop: Callable[[], bool], report: Callable[[str, float], None]
    ) -> Generator[Outcome]:
        """Yield every trial once, as they end; after `should_stop` none that was cut.

        Args:
            work: what to do; with no trial, nothing is started.
            should_stop: whether to end in good order.
            report: is told which share of a trial is done, and to hear from it now and then.
        """
        ...


class SweepEnd(NamedTuple):
    """How a sweep ended."""

    complete: bool
    """Whether every trial has its result."""
    failed: dict[str, str]
    """Trials that failed, and why."""


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
    """Run what is missing of a sweep; Ctrl-C ends it in good order.

    A trial that fails does not keep others from finishing.

    Args:
        experiment: what to run.
        trials: one of its sweeps.
        out: its directory; trials that have their result there are not run again.
        about: what tells this sweep from others that could be in that directory.
        command: that asked for it, for the record.
        executor: the engine.
        show: is told what is about to be done.
    """
    out = out.absolute()
    _require_ours(out, about)
    with locked_directory(out, "sweep"):
        if not (out / "sweep.json").exists():
            write_json(out / "sweep.json", {**about, "command": command, **provenance()})
        finished = _collect(experiment, trials, out)
        costs, failed = _costs(experiment, [trial for trial in trials if trial.name not in finished], out)
        jobs = [trial for trial in trials if trial.name in costs]
        show(_announce(len(trials), len(finished), list(costs.values()), executor))
        weights = {name: cost.core_seconds for name, cost in costs.items()}
        work = Work(experiment.run, jobs, list(costs.values()), out)
        with stop_on_signal() as should_stop, SweepProgress(experiment.name, weights) as bar:
            board = _Board(out / "status.json", bar, len(trials), len(finished), failed)
            board.write()

            def report(name: str, share: float) -> None:
                bar.update(name, share)
                board.write()

            by_name = {trial.name: trial for trial in jobs}
            with closing(executor.execute(work, should_stop, report)) as outcomes:
                for outcome in outcomes:
                    trial = by_name[outcome.trial]
                    if outcome.rows is None:
                        failed[trial.name] = outcome.error
                        _save_failure(out, trial, outcome.error, outcome.details)
                    else:
                        finished[trial.name] = outcome.rows
                        _save(out, trial, outcome.rows, round(outcome.seconds, 1))
                        _write_results(out, experiment, trials, finished)
                    bar.finish(trial.name, failed=outcome.rows is None)
                    board.write()
            board.write(ended=True)
    return SweepEnd(len(finished) == len(trials), failed)


def _costs(experiment: Experiment, trials: Sequence[Trial], out: Path) -> tuple[dict[str, Cost], dict[str, str]]:
    """What each trial takes, and why some cannot be run at all, which does not keep others from it."""
    costs: dict[str, Cost] = {}
    failed: dict[str, str] = {}
    for trial in trials:
        try:
            costs[trial.name] = experiment.cost(trial.config)
        except UserError as error:
            failed[trial.name] = str(error)
            _save_failure(out, trial, str(error), "")
    return costs, failed


def find_results(
    experiment: Experiment,
    trials: Sequence[Trial],
    out: Path,
    *,
    about: Mapping[str, str],
    command: str,
    show: Callable[[str], None] = print,
) -> bool:
    """Run nothing, but collect what there is, also while the sweep is going on; returns whether that is all.

    Args:
        experiment: as for `run_sweep`.
        trials: as for `run_sweep`.
        out: as for `run_sweep`.
        about: as for `run_sweep`.
        command: as for `run_sweep`.
        show: is told how much there is.
    """
    require(
        (out / "sweep.json").exists() or any(experiment.find(trial.config, out) is not None for trial in trials),
        f"there is nothing to draw in {out}: none of {len(trials)} trials has a result; leave out --only-draw",
    )
    _require_ours(out, about)
    if not (out / "sweep.json").exists():
        write_json(out / "sweep.json", {**about, "command": command, **provenance()})
    finished = _collect(experiment, trials, out)
    show(f"{len(trials)} trials, {len(finished)} have their result")
    return len(finished) == len(trials)


class _Board:
    """Keeps `status.json` up to date, so that another terminal can look."""

    def __init__(self, path: Path, bar: SweepProgress, num_trials: int, num_found: int, failed: dict[str, str]):
        self._path, self._bar = path, bar
        self._num_trials, self._num_found, self._failed = num_trials, num_found, failed
        self._written = 0.0

    def write(self, *, ended: bool = False) -> None:
        """Say how far the sweep is, if that was not done a moment ago."""
        if not ended and time.monotonic() - self._written < _SECONDS_BETWEEN_BOARDS:
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


def read_results(out: Path) -> list[CsvRow]:
    """The rows of a sweep's `results.csv`."""
    path = out / "results.csv"
    require(path.is_file(), f"{out} holds no results.csv; run the sweep first")
    return [*read_table(path)]


def _announce(num_trials: int, num_finished: int, costs: Sequence[Cost], executor: Executor) -> str:
    """How much there is to do for trials that have `costs`."""
    text = f"{num_trials} trials, {num_finished} have their result"
    if not costs:
        return text
    number = executor.fit(costs)
    needed = sum(sorted((cost.bytes for cost in costs), reverse=True)[:number])
    seconds = [cost.core_seconds for cost in costs]
    minutes = max(sum(seconds) / executor.cores, max(cost.least_seconds for cost in costs)) / 60
    time_needed = f"{minutes:.1f} min" if minutes < 600 else f"{minutes / 1440:,.1f} days"
    text = f"{text}; the rest takes at most about {time_needed} and {needed / 1e6:,.0f} MB"
    disk = sum(cost.disk_bytes for cost in costs)
    if disk:
        text += f" of memory, and {disk / 1e9:,.1f} GB of disk"
    return "\n".join([text, *dict.fromkeys(cost.note for cost in costs if cost.note)])


def _require_ours(out: Path, about: Mapping[str, str]) -> None:
    """Make `out` a directory for this sweep, unless it is something else's."""
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


def _collect(experiment: Experiment, trials: Sequence[Trial], out: Path) -> dict[str, list[Row]]:
    """The results that there are, here or of another sweep, by trial; also written to `results.csv`."""
    finished = {trial.name: rows for trial in trials if (rows := _load(out, trial)) is not None}
    for trial in trials:
        if trial.name not in finished and (rows := experiment.find(trial.config, out)) is not None:
            finished[trial.name] = rows
            _save(out, trial, rows, None)
    _write_results(out, experiment, trials, finished)
    return finished


def _load(out: Path, trial: Trial) -> list[Row] | None:
    """The rows of a trial that is finished."""
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


def _save(out: Path, trial: Trial, rows: list[Row], seconds: float | None) -> None:
    """Record a trial; `seconds` is None where another sweep ran it."""
    record = {"config": _as_json(dataclasses.asdict(trial.config)), "rows": rows, "seconds": seconds}
    write_json(out / "trials" / f"{trial.name}.json", record | provenance())
    (out / "failed" / f"{trial.name}.json").unlink(missing_ok=True)


def _save_failure(out: Path, trial: Trial, error: str, details: str) -> None:
    """Record why a trial has no result; the next time it is tried again."""
    record = {"config": _as_json(dataclasses.asdict(trial.config)), "error": error}
    record |= {"details": details} if details else {}
    write_json(out / "failed" / f"{trial.name}.json", record | provenance())


def is_same(config: Any, record: Mapping[str, Any]) -> bool:
    """Whether a record in JSON is of this configuration; a field that it does not have counts as its default."""
    fields = {field.name: field.default for field in dataclasses.fields(config)}

    def same(name: str) -> bool:
        value = getattr(config, name)
        if name not in record:
            return value == fields[name]
        return is_same(value, record[name]) if dataclasses.is_dataclass(value) else _as_json(value) == record[name]

    return record.keys() <= fields.keys() and all(map(same, fields))


def _as_json(value: Any) -> Any:
    """A value as it comes back from a JSON file."""
    return json.loads(json.dumps(value))


def _write_results(
    out: Path, experiment: Experiment, trials: Sequence[Trial], finished: dict[str, list[Row]]
) -> None:
    """All rows there are, in the order of the sweep."""
    rows = [
        {"trial": trial.name, **experiment.describe(trial.config), **row}
        for trial in trials
        if trial.name in finished
        for row in finished[trial.name]
    ]
    for row in rows:
        require(
            row.keys() == rows[0].keys(),
            f"{row['trial']} in {out / 'trials'} has other columns than {rows[0]['trial']}; one is another "
            "version's: remove its file to run it again",
        )
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_atomically(out / "results.csv", text.getvalue().encode())
