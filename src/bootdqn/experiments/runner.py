"""Runs a sweep: every trial that has no result yet, by an executor, into one directory.

sweep.json           experiment, preset, command, versions, git revision
trials/NAME.json     one trial: its configuration, its rows, what made them and how long that took
results.csv          the rows of all trials so far, in the order of the sweep
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from bootdqn.errors import UserError, require
from bootdqn.loops.groups import available_cores
from bootdqn.memory import available_memory
from bootdqn.progress import SweepProgress, stop_on_signal
from bootdqn.runs.directory import claim_directory, provenance, write_atomically, write_json

Preset = Literal["smoke", "quick", "paper"]
"""Seconds, to see that it runs; minutes, to see what comes out; or the paper's settings."""
Row = dict[str, Any]
"""One line of `results.csv`; all rows of an experiment have the same columns."""
CsvRow = Mapping[str, str]
"""The same, read back."""


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


class Context(NamedTuple):
    """What a running trial is given."""

    should_stop: Callable[[], bool]
    """Whether to give up."""
    report: Callable[[float], None]
    """Is told which share of the trial is done."""
    pool: ThreadPoolExecutor
    """Threads for the work, shared with the trials that run beside it."""
    out: Path
    """The sweep's directory."""


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


class Executor(Protocol):
    """An engine that carries out trials."""

    def __call__(
        self,
        run: Run,
        trials: Sequence[Trial],
        out: Path,
        should_stop: Callable[[], bool],
        report: Callable[[str, float], None],
    ) -> Iterator[tuple[Trial, list[Row], float]]:
        """Yield every trial with its rows and seconds, as they finish; after `should_stop` none that was cut.

        A trial that raises `UserError` does not keep others from finishing; the error comes at the end.
        """
        ...


def on_this_machine(
    run: Run,
    trials: Sequence[Trial],
    out: Path,
    should_stop: Callable[[], bool],
    report: Callable[[str, float], None],
) -> Iterator[tuple[Trial, list[Row], float]]:
    """Run as many trials at once as there are cores; their work shares one thread a core."""
    cores = available_cores()
    waiting = list(reversed(trials))
    running: dict[Future[tuple[list[Row] | None, float]], Trial] = {}
    errors: list[Exception] = []
    closing = False

    def stop() -> bool:
        return closing or should_stop()

    def timed(trial: Trial, pool: ThreadPoolExecutor) -> tuple[list[Row] | None, float]:
        start = time.perf_counter()
        report(trial.name, 0.0)
        rows = run(trial.config, Context(stop, lambda share: report(trial.name, share), pool, out))
        return rows, time.perf_counter() - start

    with ThreadPoolExecutor(cores) as pool, ThreadPoolExecutor(cores) as trial_threads:
        try:
            while running or (waiting and not stop()):
                while waiting and len(running) < cores and not stop():
                    trial = waiting.pop()
                    running[trial_threads.submit(timed, trial, pool)] = trial
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    trial = running.pop(future)
                    try:
                        rows, seconds = future.result()
                    except UserError as error:  # the other trials can do without this one
                        errors.append(UserError(f"{trial.name}: {error}"))
                        continue
                    if rows is not None:
                        yield trial, rows, seconds
        finally:
            closing = True  # whatever still runs ends soon
    if errors:
        raise errors[0]


def run_sweep(
    experiment: Experiment,
    preset: Preset,
    out: Path,
    *,
    command: str,
    executor: Executor = on_this_machine,
    only_find: bool = False,
    show: Callable[[str], None] = print,
) -> bool:
    """Run what is missing of a sweep; Ctrl-C ends it in good order.

    Args:
        experiment: what to run.
        preset: which of its sweeps.
        out: its directory; trials that have their result there are not run again.
        command: that asked for it, for the record.
        executor: the engine.
        only_find: run nothing; take what there is.
        show: is told what is about to be done.

    Returns:
        Whether every trial has its result.
    """
    trials = experiment.sweep(preset)
    _claim(out, experiment, preset, command)
    finished = {trial.name: rows for trial in trials if (rows := _load(out, trial)) is not None}
    for trial in trials:
        if trial.name not in finished and (rows := experiment.find(trial.config, out)) is not None:
            finished[trial.name] = rows
            _save(out, trial, rows, None)
    missing = [trial for trial in trials if trial.name not in finished]
    _write_results(out, experiment, trials, finished)
    if only_find:
        show(f"{len(trials)} trials, {len(finished)} have their result")
        return not missing
    costs = {trial.name: experiment.cost(trial.config) for trial in missing}
    largest = sorted((cost.bytes for cost in costs.values()), reverse=True)[: available_cores()]
    needed, available = sum(largest), available_memory()
    require(
        available is None or needed < available,
        f"the sweep needs {needed / 1e9:.1f} GB and {(available or 0) / 1e9:.1f} GB of memory is free",
    )
    show(_announce(trials, costs, needed))
    weights = {name: cost.core_seconds for name, cost in costs.items()}
    with stop_on_signal() as should_stop, SweepProgress(experiment.name, weights) as bar:
        for trial, rows, seconds in executor(experiment.run, missing, out, should_stop, bar.update):
            finished[trial.name] = rows
            _save(out, trial, rows, round(seconds, 1))
            _write_results(out, experiment, trials, finished)
            bar.finish(trial.name)
    return len(finished) == len(trials)


def read_results(out: Path) -> list[CsvRow]:
    """The rows of a sweep's `results.csv`."""
    path = out / "results.csv"
    require(path.is_file(), f"{out} holds no results.csv; run the sweep first")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _announce(trials: Sequence[Trial], costs: dict[str, Cost], needed: int) -> str:
    """How much there is to do for the trials that have `costs`, in `needed` bytes."""
    text = f"{len(trials)} trials, {len(trials) - len(costs)} have their result"
    if not costs:
        return text
    seconds = [cost.core_seconds for cost in costs.values()]
    minutes = max(sum(seconds) / available_cores(), max(cost.least_seconds for cost in costs.values())) / 60
    time_needed = f"{minutes:.1f} min" if minutes < 600 else f"{minutes / 1440:,.1f} days"
    text = f"{text}; the rest takes at most about {time_needed} and {needed / 1e6:,.0f} MB"
    disk = sum(cost.disk_bytes for cost in costs.values())
    if disk:
        text += f" of memory, and {disk / 1e9:,.1f} GB of disk"
    return "\n".join([text, *dict.fromkeys(cost.note for cost in costs.values() if cost.note)])


def _claim(out: Path, experiment: Experiment, preset: Preset, command: str) -> None:
    """Make `out` this sweep's directory, unless it is something else's."""
    path = out / "sweep.json"
    if not path.exists():
        claim_directory(out)
        about = {"experiment": experiment.name, "preset": preset, "command": command}
        write_json(path, about | provenance())
        return
    try:
        record = json.loads(path.read_text())
        found = record["experiment"], record["preset"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} cannot be read; choose another --out") from None
    require(
        found == (experiment.name, preset),
        f"{out} holds {found[0]} with preset {found[1]}, not {experiment.name} with preset {preset}; "
        "choose another --out",
    )


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
