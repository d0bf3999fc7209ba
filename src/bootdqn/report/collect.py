"""From directories to plain values: which runs and experiments there are, and what their files say.

A run may be going on, or have been killed at any moment, so that every file may be missing, cut short or damaged.
What cannot be read is left out, with a note in words that the page shows.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bootdqn.errors import UserError, require
from bootdqn.report.records import LARGEST, Card, Experiment, Policy, Run, Training, number, text
from bootdqn.runs.directory import read_json

T = TypeVar("T")
Fingerprint = tuple[tuple[str, int, int], ...]
"""Name, time of change and size of every file in a directory."""


class Found(NamedTuple):
    """A directory that belongs on the page."""

    name: str
    """Its path, from the deepest directory that holds all that was asked for."""
    path: Path
    is_run: bool
    """Or else an experiment."""
    fingerprint: Fingerprint


def find(paths: Sequence[Path]) -> list[Found]:
    """All runs and experiments in these directories and below, by name."""
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
    """A key that puts seed2 before seed10."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def _fingerprint(path: Path) -> Fingerprint:
    def look(entry: os.DirEntry[str]) -> Iterable[tuple[str, int, int]]:
        try:
            status = entry.stat()
        except OSError:  # it has just gone
            return []
        return [(entry.name, status.st_mtime_ns, status.st_size)] if entry.is_file() else []

    with os.scandir(path) as entries:
        return tuple(sorted(row for entry in entries if entry.name[0] != "." for row in look(entry)))


def read_experiment(found: Found) -> Experiment:
    """What an experiment's directory says."""
    notes: list[str] = []
    record = _read_object(found.path / "sweep.json", notes)
    try:
        summary = (found.path / "summary.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        summary = ""
        notes.append("there is no summary yet: the experiment has not come to an end")
    return Experiment(name=found.name, path=found.path, record=record, summary=summary, notes=notes)


def read_run(found: Found) -> Run:
    """What a run directory says."""
    path, notes = found.path, list[str]()
    config, record = (_read_object(path / name, notes) for name in ("config.json", "run.json"))
    protocol = _read_object(path / "protocol.json", notes) if (path / "protocol.json").exists() else {}
    evaluated: list[tuple[float, Policy]] = []
    if (path / "evaluations.csv").exists():
        columns = ("step", "policy", "episodes", "mean_return", "least_return", "largest_return", "data_share")
        evaluated = _read_table(path / "evaluations.csv", columns, _parse_evaluation, notes)
    changes = [mtime for name, mtime, _ in found.fingerprint if name == "metrics.csv"]
    return Run(
        name=found.name,
        path=path,
        config=config,
        record=record,
        protocol=protocol,
        trainings=_read_trainings(path / "metrics.csv", config, record, notes),
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


def _read_table(path: Path, columns: Sequence[str], parse: Callable[[list[str]], T], notes: list[str]) -> list[T]:
    """The rows of a CSV file, as far as they can be read.

    Args:
        path: the file.
        columns: which are needed.
        parse: makes a value of them; raises ValueError where it cannot.
        notes: is told what was left out.
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
        places = [header.index(column) for column in columns]
        for cells in reader:
            try:
                rows.append(parse([cells[place] for place in places]))
            except (ValueError, IndexError):
                unread += 1
    except (ValueError, csv.Error):
        notes.append(f"{path.name} is damaged")
    if unread:
        notes.append(f"rows of {path.name} that cannot be read: {unread}")
    return rows


def _read_trainings(
    path: Path, config: dict[str, Any], record: dict[str, Any], notes: list[str]
) -> list[Training]:
    """The episodes of every seed; a run that counts steps has one."""
    by_episodes = "episodes" in config

    def parse(cells: list[str]) -> tuple[int, float, float]:
        seed = int(cells[2]) if by_episodes else 0
        return seed, _finite(cells[0]), _finite(cells[1])

    columns = ("episode", "return", "seed") if by_episodes else ("step", "return")
    by_seed: dict[int, list[tuple[float, float]]] = {}
    for seed, x, value in _read_table(path, columns, parse, notes):
        by_seed.setdefault(seed, []).append((x, value))
    trainings = []
    for seed, rows in sorted(by_seed.items()):
        x, returns = np.array(sorted(rows, key=lambda row: row[0])).T
        done = float(x[-1])
        if not by_episodes:
            seed, done = int(number(config.get("seed")) or 0), max(done, number(record.get("steps")) or 0.0)
        trainings.append(Training(seed, x, returns, done))
    return trainings


def _parse_evaluation(cells: list[str]) -> tuple[float, Policy]:
    step, policy, *numbers, share = cells
    return _finite(step), Policy(policy, *map(_finite, numbers), share=_finite(share) if share else None)


def _last_evaluation(evaluated: list[tuple[float, Policy]]) -> list[Card]:
    """A card from the last step at which heads were evaluated, where there is one."""
    step = max((step for step, policy in evaluated if policy.name.startswith("head")), default=None)
    if step is None:
        return []
    policies = [policy for other, policy in evaluated if other == step]
    return [Card(f"Evaluation at step {step:,.0f}", policies)]


def _read_cards(path: Path, notes: list[str]) -> list[Card]:
    if not path.exists():
        return []
    try:
        return [_parse_card(card) for card in _read_object(path, notes).get("cards", [])]
    except (TypeError, ValueError, AttributeError, KeyError):
        notes.append(f"{path.name} is damaged")
        return []


def _parse_card(card: dict[str, Any]) -> Card:
    names = ("episodes", "mean_return", "least_return", "largest_return", "data_share")
    return Card(
        title=f"Seed {text(card['seed'])}"
        + (f" at step {step:,.0f}" if (step := number(card.get("step"))) else ""),
        observations=text(card["observations"]),
        policies=[Policy(text(row["policy"]), *(number(row.get(n)) for n in names)) for row in card["policies"]],
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
