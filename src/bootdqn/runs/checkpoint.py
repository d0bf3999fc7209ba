"""Checkpoints: all that a training needs to continue, in files that are whole, checked and never unpickled.

checkpoints/000000020000.json               step, information, the checksums of the files below, and one of itself
checkpoints/000000020000-0123456789ab.safetensors   parameters, optimizer, random keys, counters
checkpoints/replay-0-000000000000-000000020000.safetensors   what was added to a replay since the one before; with
                                            .zlib behind it, compressed

A checkpoint costs what is new: a replay is the files of several. The last two are kept, damaged ones passed over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from bootdqn.errors import UserError
from bootdqn.replay.host_memory import zeros_apart
from bootdqn.runs.directory import write_atomically

FORMAT = "bootdqn-checkpoint-2"
_WRITERS = {"bootdqn-checkpoint-1": "0.1"}
"""Versions of the package that wrote older formats."""
_KEPT = 2
_ROWS_A_FILE = 20_000
"""The largest number of replay rows per file: a file is in memory three times while it is written."""


class ReplayRows(NamedTuple):
    """A ring of transitions, as far as a checkpoint is concerned."""

    added: int
    """How many were ever added."""
    capacity: int
    rows: Callable[[np.ndarray], dict[str, np.ndarray]]
    """(positions in the ring [N]) -> fields [N, ...]."""
    compress: bool = False
    """Whether that is worth the time: pictures take a tenth of the room."""


class Checkpoint(NamedTuple):
    """A checkpoint that was read."""

    step: int
    info: dict[str, Any]
    arrays: dict[str, np.ndarray]
    replays: list[dict[str, np.ndarray]]
    """Fields [capacity, ...] of every replay; rows that were never written are zero."""
    added: list[int]
    """How many rows were ever added to every replay."""


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path):
        self.folder = run / "checkpoints"
        self._files: dict[str, str] = {}
        """Checksums of the files of the last one, saved or loaded."""
        self._damaged: set[str] = set()
        """Manifests that were passed over."""

    def save(
        self,
        step: int,
        *,
        info: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        replays: Sequence[ReplayRows] = (),
    ) -> None:
        """Write a checkpoint; the ones before it stay good until it is complete."""
        files: dict[str, str] = {}
        for index, replay in enumerate(replays):
            first = max(0, replay.added - replay.capacity)
            for name, digest in self._files.items():
                which, _, stop = _segment(name)
                if which == index and stop > first:
                    files[name] = digest
            first = max([first, *(_segment(name)[2] for name in files if _segment(name)[0] == index)])
            for start in range(first, replay.added, _ROWS_A_FILE):
                stop = min(start + _ROWS_A_FILE, replay.added)
                rows = replay.rows(np.arange(start, stop) % replay.capacity)
                data, name = _serialized(rows), f"replay-{index}-{start:012}-{stop:012}.safetensors"
                if replay.compress:
                    data, name = zlib.compress(data, 1), f"{name}.zlib"
                files[name] = self._write(name, data)
        # Its name tells its content, so that a step which is saved again leaves what it replaces alone.
        data = _serialized(arrays)
        name = f"{step:012}-{_digest(data)[:12]}.safetensors"
        files[name] = self._write(name, data)
        capacities = [replay.capacity for replay in replays]
        added = [replay.added for replay in replays]
        manifest = {
            "format": FORMAT,
            "step": step,
            "info": info,
            "files": files,
            "added": added,
            "capacity": capacities,
        }
        manifest["checksum"] = _manifest_digest(manifest)
        write_atomically(self.folder / f"{step:012}.json", json.dumps(manifest, indent=1).encode())
        self._files = files
        self._damaged.discard(f"{step:012}.json")
        self._forget()

    def load(self, tell: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None if there is none; says which ones are not."""
        self._files = {}
        for path in reversed(self._manifests()):
            try:
                checkpoint = self._read(path)
            except _DamagedError as error:
                tell(f"the checkpoint of step {int(path.stem)} is damaged ({error}); using the one before")
                self._damaged.add(path.name)
                continue
            return checkpoint
        return None

    def _read(self, path: Path) -> Checkpoint:
        manifest = self._manifest(path)
        if manifest["format"] != FORMAT:
            version = _WRITERS.get(str(manifest["format"]), "of another version")
            raise UserError(f"{path} was written by bootdqn {version}: resume it with that, or start again")
        step, info, files = manifest["step"], manifest["info"], manifest["files"]
        added, capacities = manifest["added"], manifest["capacity"]
        arrays: dict[str, np.ndarray] = {}
        replays: list[dict[str, np.ndarray]] = [{} for _ in added]
        for name, digest in files.items():
            found_arrays = self._checked(name, digest)
            which, first, stop = _segment(name)
            if which is None:
                arrays = found_arrays
                continue
            for field, rows in found_arrays.items():
                ring = replays[which].setdefault(
                    field, zeros_apart((capacities[which], *rows.shape[1:]), rows.dtype)
                )
                positions = np.arange(first, stop)
                recent = positions >= added[which] - capacities[which]
                ring[positions[recent] % capacities[which]] = rows[recent]
        self._files = files
        return Checkpoint(step, info, arrays, replays, added)

    def _manifest(self, path: Path) -> dict[str, Any]:
        """What a manifest says, if it is what was written."""
        try:
            manifest = json.loads(path.read_bytes())
            digest = manifest.pop("checksum")
            whole = digest == _manifest_digest(manifest)
        except OSError as error:
            raise _DamagedError(f"{path.name}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _DamagedError(f"{path.name}: {type(error).__name__}") from None
        if not whole:
            raise _DamagedError(f"{path.name}: wrong checksum")
        return manifest

    def _checked(self, name: str, digest: str) -> dict[str, np.ndarray]:
        """The arrays of a file, if they are those that were written."""
        try:
            data = (self.folder / name).read_bytes()
        except OSError as error:
            raise _DamagedError(f"{name}: {error.strerror}") from None
        if _digest(data) != digest:
            raise _DamagedError(f"{name}: wrong checksum")
        return safetensors.numpy.load(zlib.decompress(data) if name.endswith(".zlib") else data)

    def _write(self, name: str, data: bytes) -> str:
        """Write a file, and return its checksum."""
        write_atomically(self.folder / name, data)
        return _digest(data)

    def _manifests(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.json") if path.stem.isdigit())

    def _forget(self) -> None:
        """Remove what the last two good ones do not need: the older, the damaged, and what was cut short."""
        needed: set[str] = set()
        kept = 0
        for path in reversed([path for path in self._manifests() if path.name not in self._damaged]):
            if kept == _KEPT:
                break
            with contextlib.suppress(_DamagedError):
                needed |= {path.name, *self._manifest(path)["files"]}
                kept += 1
        for path in self.folder.iterdir():
            if path.name not in needed and not path.is_dir():
                path.unlink()


def _serialized(arrays: Mapping[str, np.ndarray]) -> bytes:
    return safetensors.numpy.save({key: np.asarray(value, order="C") for key, value in arrays.items()})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    return _digest(json.dumps(manifest).encode())


def _segment(name: str) -> tuple[int | None, int, int]:
    """The replay, first row and end of a part of it, from its file name; None for the replay of other files."""
    match = re.fullmatch(r"replay-(\d+)-(\d+)-(\d+)\.safetensors(?:\.zlib)?", name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else (None, 0, 0)


class _DamagedError(Exception):
    """A checkpoint is not what was written."""
