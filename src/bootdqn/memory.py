"""Memory of the host: how much is left, and how it is handed out."""

from __future__ import annotations

import ctypes
from pathlib import Path

from bootdqn.errors import require


def require_memory(needed: int, advice: str) -> None:
    """Refuse what cannot fit, where the system tells how much memory is left."""
    available = available_memory()
    require(
        available is None or needed < available,
        f"the run needs {needed / 1e9:.1f} GB and {(available or 0) / 1e9:.1f} GB of memory is free; {advice}",
    )


def available_memory() -> int | None:
    """Bytes that can still be used, on systems that say so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def keep_large_blocks() -> None:
    """Let large blocks that are freed be used again in place of going back to the system, where glibc allocates.

    An update of a large network has temporary arrays of a hundred megabytes. By default each comes from the system
    anew, which clears it page by page: up to a third of the time of an update. To be called before the first
    computation: threads that have allocated keep the arena that they got then, and only one can grow so large.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**30)
        libc.mallopt(_M_ARENA_MAX, 1)


_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Numbers of options in glibc's malloc.h."""
