"""A run directory: what was run, with what, and its results.

config.json             the resolved configuration
run.json                command, versions, git revision, times, status
metrics.csv             one row an episode and seed
models/seed0.safetensors  parameters of every seed
learning_curve.png, .svg
"""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import json
import os
import platform
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from bootdqn.errors import UserError, require

_PACKAGES = ("bootdqn", "jax", "jaxlib", "equinox", "optax", "gymnasium", "numpy")


class RunDirectory:
    """Writes a run directory; every file but the growing tables appears whole or not at all."""

    def __init__(self, path: Path, record: dict[str, Any], tables: dict[str, IO[str]], lock: IO[bytes]):
        """Take over a directory that `create` or `reopen` has prepared."""
        self.path = path
        self._record, self._tables, self._lock = record, tables, lock
        write_json(path / "run.json", record)

    @classmethod
    def create(
        cls, path: Path, *, config: dict[str, Any], command: str, tables: Mapping[str, Sequence[str]]
    ) -> RunDirectory:
        """Claim `path`, which must be new or empty, and begin tables with these columns."""
        claim_directory(path)
        lock = lock_directory(path)
        record = {"command": command, "status": "running", "started": _now(), **provenance()}
        write_json(path / "config.json", config)
        files: dict[str, IO[str]] = {
            name: (path / name).open("w", newline="", encoding="utf-8") for name in tables
        }
        self = cls(path, record, files, lock)
        for name, columns in tables.items():
            self.append(name, [columns])
        return self

    @classmethod
    def reopen(cls, path: Path, ends: Mapping[str, int]) -> RunDirectory:
        """Continue with a run that was cut short; rows of its tables that came after `ends` are dropped."""
        lock = lock_directory(path)
        record = read_json(path / "run.json")
        for stale in ("error", "finished"):
            record.pop(stale, None)
        record |= {"status": "running", "resumed": [*record.get("resumed", []), _now()], **provenance()}
        files: dict[str, IO[str]] = {}
        for name, end in ends.items():
            file = (path / name).open("r+", newline="", encoding="utf-8")
            file.seek(0, os.SEEK_END)
            require(
                file.tell() >= end, f"{path / name} is shorter than when the checkpoint was made; was it changed?"
            )
            file.truncate(end)
            file.seek(end)
            files[name] = file
        return cls(path, record, files, lock)

    def append(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table in one write, and hand them to the operating system."""
        self._tables[table].write(csv_text(rows))
        self._tables[table].flush()

    def ends(self) -> dict[str, int]:
        """How long every table is, once it is safely on disk."""
        for file in self._tables.values():
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._tables.items()}

    def finish(self, status: str, **results: Any) -> None:
        """Close the run with its status and results."""
        self._record |= {"status": status, "finished": _now(), **results}
        try:
            for file in self._tables.values():
                file.close()  # fails, as all writing does, when the disk is full
        finally:
            write_json(self.path / "run.json", self._record)
            (self.path / ".lock").unlink(missing_ok=True)
            self._lock.close()


def lock_directory(path: Path, what: str = "run") -> IO[bytes]:
    """Keep other processes from what is in `path`; the system lets go of it however this one ends."""
    file = _try_lock(path)
    if file is None:
        raise UserError(f"the {what} in {path} is still going on, in another process")
    return file


@contextmanager
def locked_directory(path: Path, what: str) -> Iterator[None]:
    """Hold the lock of `lock_directory` for a while, and leave nothing of it."""
    with lock_directory(path, what):
        try:
            yield
        finally:
            (path / ".lock").unlink(missing_ok=True)


def wait_for_lock(path: Path, should_stop: Callable[[], bool], *, seconds: float) -> None:
    """Give a process that is dying, or whose machine is gone, so long to let go of the run in `path`."""
    deadline = time.monotonic() + seconds
    while path.is_dir() and not should_stop():
        file = _try_lock(path)
        if file is not None:
            file.close()
            return
        if time.monotonic() > deadline:
            raise UserError(f"the run in {path} is still going on, in another process")
        time.sleep(_SECONDS_BETWEEN_TRIES)


_SECONDS_BETWEEN_TRIES = 0.2


def _try_lock(path: Path) -> IO[bytes] | None:
    """The locked file of a directory, or None if another process has locked it."""
    while True:
        file = (path / ".lock").open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path / ".lock")):
                return file
        except FileNotFoundError:
            pass
        except OSError as error:
            file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise UserError(
                    f"the file system of {path} does not lock files ({error.strerror}), which keeps two processes "
                    "from one run; choose another, or mount it with locks"
                ) from None
            return None
        file.close()  # of a file that its last owner has just removed


def require_unfinished(path: Path) -> None:
    """Raise `UserError` if a run is finished."""
    finished = read_json(path / "run.json").get("status") == "finished"
    require(not finished, f"{path} is finished; there is nothing to resume")


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote, if it is an object."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no file {path}; is {path.parent} a run directory?") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: it is not JSON") from None
    require(isinstance(value, dict), f"{path} is damaged: it should hold an object")
    return value


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a table that `RunDirectory` writes, without one that is being written just now."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = file.readlines()
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    return [row for row in csv.DictReader(lines) if None not in row.values() and None not in row]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one and nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Machines that share a file system have processes of the same number.
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk, make room
        raise


def require_writable(path: Path) -> None:
    """Refuse a place where no file can be written; to be called before the work whose result goes there."""
    require(not path.is_dir(), f"{path} is a directory; give the name of a file")
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    require(folder.is_dir() and os.access(folder, os.W_OK), f"cannot write to {folder}; choose another place")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Format rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def provenance() -> dict[str, Any]:
    """What a result came from: source revision, Python, system and package versions."""
    return {
        "git_revision": git_revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }


def git_revision() -> str | None:
    """Revision of the source tree this package runs from, with `-dirty` when it was changed; None outside git."""
    package = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=package, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        # Installed into somebody else's repository, the package's files are not tracked there.
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def claim_directory(path: Path) -> None:
    """Make `path` a directory of ours, new or empty, or say why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        # A write that was killed leaves a hidden file: `write_atomically`.
        entries = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
        require(
            "run.json" not in entries,
            f"{path} already holds a run; choose another --out or remove it",
        )
        require(not entries, f"{path} is not empty (it holds {', '.join(entries[:3])}); choose another --out")
        probe = path / ".probe"
        probe.touch()
        probe.unlink()
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path} cannot be a directory: a file is in the way; choose another --out") from None
    except PermissionError:
        raise UserError(f"no permission to write to {path}; choose another --out") from None
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}; choose another --out") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
