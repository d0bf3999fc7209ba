"""Finds runs and experiments in directories, and reads their files.

A run may still be going on or may have been killed at any moment, so any file may be missing, truncated or
damaged. Whatever cannot be read is left out, and a note about it is shown on the page.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bootdqn.errors import UserError, require
from bootdqn.report.records import (
    LARGEST,
    ExperimentRecord,
    PolicyScore,
    ReportCard,
    RunRecord,
    SeedCurve,
    number,
    text,
)
from bootdqn.runs.directory import read_json
from bootdqn.runs.records import PER_SEED, loop_of

T = TypeVar("T")
Fingerprint = tuple[tuple[str, int, int], ...]
"""Name, modification time and size of every file in a directory."""


class Found(NamedTuple):
    """A directory of a run or of an experiment."""

    name: str
    """Its path relative to the deepest directory that contains all requested ones."""
    path: Path
    is_run: bool
    """Whether this is a run rather than an experiment."""
    fingerprint: Fingerprint


def find(paths: Sequence[Path]) -> list[Found]:
    """All runs and experiments in these directories and below them, sorted by name."""
    for path in paths:
        what = f"{path} is a file" if path.exists() else f"no directory {path}"
        require(path.is_dir(), f"{what}; give a run directory, or one that holds runs, such as results")
    found: dict[Path, tuple[bool, Fingerprint]] = {}
    for root in paths:
        for place, folders, files in os.walk(root.resolve()):
            path = Path(place)
            is_run, is_experiment = {"run.json", "config.json"} <= {*files}, "sweep.json" in files
            skipped = {"trials"} if is_experiment else set(folders) if is_run else set()
            folders[:] = [folder for folder in folders if folder[0] != "." and folder not in skipped]
            if is_run or is_experiment:
                found[path] = is_run, _fingerprint(path)
    if not found:
        names = " or ".join(map(str, paths))
        raise UserError(
            f"no runs in {names}: a run directory holds run.json and config.json, an experiment sweep.json; "
            "`bootdqn train --out DIRECTORY` makes one"
        )
    roots = [root.resolve() for root in paths]
    base = Path(os.path.commonpath([root.parent if root in found else root for root in roots]))
    everything = [Found(path.relative_to(base).as_posix(), path, *what) for path, what in found.items()]
    return sorted(everything, key=lambda item: _natural(item.name))


def _natural(name: str) -> list[str | int]:
    """A sort key that puts seed2 before seed10."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def _fingerprint(path: Path) -> Fingerprint:
    def look(entry: os.DirEntry[str]) -> Iterable[tuple[str, int, int]]:
        try:
            status = entry.stat()
        except OSError:  # it has just been removed
            return []
        return [(entry.name, status.st_mtime_ns, status.st_size)] if entry.is_file() else []

    with os.scandir(path) as entries:
        return tuple(sorted(row for entry in entries if entry.name[0] != "." for row in look(entry)))


def read_experiment(found: Found) -> ExperimentRecord:
    """Read the directory of an experiment."""
    notes: list[str] = []
    record = _read_object(found.path / "sweep.json", notes)
    try:
        summary = (found.path / "summary.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        summary = ""
        notes.append("there is no summary yet: the experiment has not finished")
    return ExperimentRecord(name=found.name, path=found.path, record=record, summary=summary, notes=notes)


def read_run(found: Found) -> RunRecord:
    """Read a run directory."""
    path, notes = found.path, list[str]()
    config, record = (_read_object(path / name, notes) for name in ("config.json", "run.json"))
    loop = _read_loop(config, notes)
    protocol = _read_object(path / "protocol.json", notes) if (path / "protocol.json").exists() else {}
    evaluated: list[tuple[float, PolicyScore]] = []
    if (path / "evaluations.csv").exists():
        columns = ("step", "policy", "episodes", "mean_return", "least_return", "largest_return", "data_share")
        evaluated = _read_table(path / "evaluations.csv", columns, _parse_evaluation, notes)
    changes = [mtime for name, mtime, _ in found.fingerprint if name == "metrics.csv"]
    return RunRecord(
        name=found.name,
        path=path,
        config=config,
        loop=loop,
        record=record,
        protocol=protocol,
        curves=_read_curves(path / "metrics.csv", loop, config, record, notes),
        evaluated=evaluated,
        cards=_read_cards(path / "heads.json", notes) or _last_evaluation(evaluated),
        last_change=datetime.fromtimestamp(changes[0] / 1e9, UTC) if changes else None,
        notes=notes,
    )


def _read_object(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        return read_json(path)
    except UserError:
        notes.append(f"{path.name} is damaged")
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
    return {}


def _read_loop(config: dict[str, Any], notes: list[str]) -> str:
    """The training loop of a run, empty if its configuration does not tell."""
    try:
        return loop_of(config) if config else ""
    except UserError as error:
        notes.append(str(error))
        return ""


def _read_table(
    path: Path, columns: Sequence[str], parse: Callable[[Mapping[str, str]], T], notes: list[str]
) -> list[T]:
    """Read all readable rows of a CSV file.

    Args:
        path: the file.
        columns: the columns that it must have.
        parse: makes a value from a row, by column; raises ValueError if it cannot.
        notes: collects descriptions of what was left out.
    """
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
        return []
    whole = content.rfind("\n") + 1
    if whole < len(content):
        notes.append(f"{path.name} ends within a line, which was left out")
    rows: list[T] = []
    unread = 0
    try:
        reader = csv.reader(io.StringIO(content[:whole]))
        header = next(reader, [])
        if not {*columns} <= {*header}:
            raise csv.Error("columns are missing")
        for cells in reader:
            try:
                rows.append(parse(dict(zip(header, cells, strict=False))))
            except (ValueError, KeyError):
                unread += 1
    except csv.Error:
        notes.append(f"{path.name} is damaged")
    if unread:
        notes.append(f"rows of {path.name} that cannot be read: {unread}")
    return rows


def _read_curves(
    path: Path, loop: str, config: dict[str, Any], record: dict[str, Any], notes: list[str]
) -> list[SeedCurve]:
    """Read the learning curve of every seed; a table without a column for seeds belongs to the run's only one."""
    x_column = "episode" if loop in PER_SEED else "step"
    only_seed = int(number(config.get("seed")) or 0)

    def parse(row: Mapping[str, str]) -> tuple[int, float, float]:
        return int(row.get("seed", only_seed)), _finite(row[x_column]), _finite(row["return"])

    by_seed: dict[int, list[tuple[float, float]]] = {}
    for seed, x, value in _read_table(path, (x_column, "return"), parse, notes):
        by_seed.setdefault(seed, []).append((x, value))
    curves = []
    for seed, rows in sorted(by_seed.items()):
        x, returns = np.array(sorted(rows, key=lambda row: row[0])).T
        done = float(x[-1])
        if x_column == "step":  # steps since the end of the last episode count, too
            done = max(done, number(record.get("steps")) or 0.0)
        curves.append(SeedCurve(seed, x, returns, done))
    return curves


def _parse_evaluation(row: Mapping[str, str]) -> tuple[float, PolicyScore]:
    names = ("episodes", "mean_return", "least_return", "largest_return")
    share = _finite(row["data_share"]) if row["data_share"] else None
    return _finite(row["step"]), PolicyScore(row["policy"], *(_finite(row[name]) for name in names), share=share)


def _last_evaluation(evaluated: list[tuple[float, PolicyScore]]) -> list[ReportCard]:
    """A report card made from the last evaluation of single heads, if there was one."""
    step = max((step for step, policy in evaluated if policy.name.startswith("head")), default=None)
    if step is None:
        return []
    policies = [policy for other, policy in evaluated if other == step]
    return [ReportCard(f"Evaluation at step {step:,.0f}", policies)]


def _read_cards(path: Path, notes: list[str]) -> list[ReportCard]:
    if not path.exists():
        return []
    try:
        return [_parse_card(card) for card in _read_object(path, notes).get("cards", [])]
    except (TypeError, ValueError, AttributeError, KeyError):
        notes.append(f"{path.name} is damaged")
        return []


def _parse_card(card: dict[str, Any]) -> ReportCard:
    names = ("episodes", "mean_return", "least_return", "largest_return", "data_share")
    return ReportCard(
        title=f"Seed {text(card['seed'])}"
        + (f" at step {step:,.0f}" if (step := number(card.get("step"))) else ""),
        observations=text(card["observations"]),
        policies=[
            PolicyScore(text(row["policy"]), *(number(row.get(n)) for n in names)) for row in card["policies"]
        ],
        correlation=[[number(value) for value in row] for row in card.get("correlation") or []],
        agreement=number(card.get("agreement")),
        effective_heads=number(card.get("effective_heads")),
        warning=text(card.get("warning")),
    )


def _finite(cell: str) -> float:
    value = float(cell)
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ValueError(f"no usable number: {cell}")
    return value
