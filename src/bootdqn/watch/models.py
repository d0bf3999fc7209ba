"""Finds and reads the parameters to watch, from model files and from checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors

from bootdqn.errors import UserError, require
from bootdqn.runs.config import RunConfig, parse_config
from bootdqn.runs.directory import read_json, read_table
from bootdqn.runs.model_file import read_model
from bootdqn.runs.records import PER_SEED, loop_of

MODEL_SUFFIX = ".safetensors"
_PARAMS = "learner.params."
"""Prefix of the names of the online parameters in a checkpoint."""


class HeadsSnapshot(NamedTuple):
    """The heads at one moment of training."""

    title: str
    """A readable name of the moment."""
    arrays: dict[str, np.ndarray]
    """Parameters by name."""
    path: Path


def find_snapshots(run: Path, files: Sequence[Path]) -> tuple[RunConfig, list[HeadsSnapshot]]:
    """Find the configuration of a run, or of a model file, and the heads to watch.

    Args:
        run: a run directory, or a model file.
        files: model files and checkpoints of the run; if empty, its last model.
    """
    if run.suffix == MODEL_SUFFIX:
        require(not files, f"--from goes with a run directory, not with the model file {run}")
        config, snapshot = _read_model(run)
        return config, [snapshot]
    config = parse_config(read_json(run / "config.json"), run / "config.json")
    last = run / "models" / "last.safetensors"
    if not files and not last.exists():
        folder = run / "checkpoints"
        why = "it is not among the files of the run; train again with the command in run.json"
        if folder.is_dir():
            why = f"the run has not ended; --from {folder} shows its checkpoints"
        raise UserError(f"no model file at {last}: {why}")
    snapshots = []
    for path in files or [last]:
        checkpoints = list(_checkpoints(path))
        if checkpoints:
            snapshots += [_read_checkpoint(step, arrays) for step, arrays in checkpoints]
            continue
        model, snapshot = _read_model(path)
        require(model.env == config.env, f"{path} is a model of {model.env}, and {run} a run on {config.env}")
        snapshots.append(snapshot)
    return config, snapshots


def _checkpoints(path: Path) -> Iterator[tuple[int, Path]]:
    """The step and the array file of every checkpoint at `path`; nothing if it is not a checkpoint."""
    if path.is_dir():
        manifests = sorted(found for found in path.glob("*.json") if found.stem.isdigit())
        require(bool(manifests), f"{path} holds no checkpoints; --from takes model files and checkpoints")
        for manifest in manifests:
            yield from _checkpoints(manifest)
    elif path.suffix == ".json" and path.stem.isdigit():
        names = [name for name in read_json(path).get("files") or () if name.startswith(f"{path.stem}-")]
        require(len(names) == 1, f"{path} is damaged: it does not name the file of its arrays")
        yield int(path.stem), path.with_name(names[0])
    else:
        step, dash, _ = path.stem.partition("-")
        if step.isdigit() and dash:
            yield int(step), path


def _read_checkpoint(step: int, path: Path) -> HeadsSnapshot:
    """Read the parameters only, as the replay buffer of a checkpoint may have gigabytes."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if name.startswith(_PARAMS)]  # noqa: SIM118 - not a mapping
            arrays = {name.removeprefix(_PARAMS): file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise UserError(f"no checkpoint at {path}") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a readable checkpoint: {error}") from None
    require(bool(arrays), f"{path} holds no heads; is it a checkpoint of a run on a Gymnasium environment?")
    return HeadsSnapshot(f"after {step:,} steps", arrays, path)


def _read_model(path: Path) -> tuple[RunConfig, HeadsSnapshot]:
    arrays, header = read_model(path)
    record = header.get("config", {})
    require(isinstance(record, dict), f"{path} is not of this version: it has no configuration")
    require(
        loop_of(record, path) not in PER_SEED,
        f"{path} belongs to a run whose learning can be watched; give its run directory in place of the model",
    )
    return parse_config(record, path), HeadsSnapshot(_title(path), arrays, path)


def _title(path: Path) -> str:
    """The name of a model with the step at which it was saved, as far as its run directory tells."""
    run, step = path.parent.parent, None
    try:
        if path.stem == "last":
            step = read_json(run / "run.json").get("steps")
        elif path.stem == "best":
            votes = [row for row in read_table(run / "evaluations.csv") if row["policy"] == "vote"]
            step = int(max(votes, key=lambda row: float(row["mean_return"]))["step"])
    except (UserError, OSError, ValueError, KeyError, TypeError):
        step = None  # a model file may lie outside of a run directory
    return f"{path.stem} model" + (f", after {step:,} steps" if isinstance(step, int) else "")
