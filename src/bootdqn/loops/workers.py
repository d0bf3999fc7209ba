"""Joins a Ray cluster, and sets up the worker processes there or on this machine."""

from __future__ import annotations

import importlib
import logging
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bootdqn.errors import UserError, require
from bootdqn.loops.seeds import available_cores
from bootdqn.runs.directory import provenance

WORKER_ENVIRONMENT = {
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "MALLOC_ARENA_MAX": "1",
}
"""Variables of a worker: one thread for XLA (`NPROC`) and for libraries, so that workers do not fight.

On pictures, the last bits of what XLA computes depend on the number of its threads: it is the same in all workers.
Only where cores would idle, and seeds can use them side by side, XLA has more. On an accelerator a worker takes
memory as it needs it, so that several share one. All threads of a process have their memory from one arena, as
`keep_large_blocks` needs it: trials run in threads.
"""
WORKER_BYTES = 500_000_000
"""Memory that a worker takes beside its trial: Python, JAX and compiled programs."""
MOST_DEATHS = 3
"""How many processes may die of the same work before it is given up."""
_SECONDS_TO_ANSWER = 10.0


def join_cluster(address: str | None) -> Any:
    """Join a cluster, and return the module `ray`.

    Args:
        address: of its head, or `auto` where this machine belongs to it; None for a new one of this machine.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise UserError("this needs Ray: pip install 'bootdqn[ray]'") from None
    where = (
        {"address": "local", "num_cpus": available_cores(), "include_dashboard": False}
        if address is None
        else {"address": address}
    )
    try:
        if address not in (None, "auto"):  # Ray itself would try for minutes
            host, _, port = str(address).rpartition(":")
            require(port.isdigit(), f"expected an address such as 10.0.0.1:6379, or auto; got {address!r}")
            socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
        with forking_for_a_moment():
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ray.exceptions.RayError) as error:  # such as other versions of Ray there
        why = " ".join(str(error).split())
        require(address is not None, f"Ray does not start on this machine: {why}")
        raise UserError(
            f"cannot join a Ray cluster at {address} ({why}); start one with `ray start --head`, or leave "
            "--address out"
        ) from None
    return ray


@contextmanager
def forking_for_a_moment() -> Iterator[None]:
    """Silence JAX's warning of forks: a process that Ray forks becomes another program at once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
        yield


def describe_machine() -> tuple[str, dict[str, str]]:
    """The name of this machine, and the versions of its packages, for `require_same_versions`."""
    return socket.gethostname(), provenance()["versions"]


def require_same_versions(host: str, versions: dict[str, str]) -> None:
    """Raise `UserError` for a node with other versions, on which results would differ."""
    _, here = describe_machine()
    other = {name: version for name, version in versions.items() if version != here[name]}
    ours = {name: here[name] for name in other}
    require(not other, f"{host} has {_words(other)}, and this machine has {_words(ours)}; install the same")


def reason(error: BaseException) -> str:
    """The first and the last line of an error's message; the last often names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else type(error).__name__


def _words(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
