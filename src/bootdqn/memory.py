"""Memory of the host: how much is left, and how it is handed out."""

from __future__ import annotations

import ctypes
import math
import mmap
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

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


def zeros_apart(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """Zeros in memory of their own, which is handed out page by page as it is written to.

    So is that of `numpy.zeros`, but not where large blocks are kept: there all of it is written at once, and the
    large pages are used up.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype).reshape(shape)


@cache
def keep_large_blocks() -> None:
    """Let large blocks that are freed be used again in place of going back to the system, where glibc allocates.

    An update of a large network has temporary arrays of a hundred megabytes. By default each comes from the system
    anew, which clears it page by page: up to a third of the time of an update. To be called before the first
    computation, by the first thread: those that have allocated keep the arena that they got then, and only one can
    grow so large. Processes that were started with `MALLOC_ARENA_MAX=1` have no other.

    The first of that memory is in large pages, where Linux gives them to who asks: products of matrices read
    columns whose numbers would each be in a page of its own.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)
    libc.mallopt(_M_ARENA_MAX, 1)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.free.argtypes = (ctypes.c_void_p,)
    block = libc.malloc(_LARGE_PAGES_BYTES)  # addresses alone: nothing is in use before it is written
    if block is not None:
        start = -(-block // _PAGE_BYTES) * _PAGE_BYTES
        libc.madvise(start, block + _LARGE_PAGES_BYTES - start, _MADV_HUGEPAGE)
        libc.free(block)


_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Numbers of options in glibc's malloc.h."""
_MADV_HUGEPAGE = 14
"""Of Linux's madvise."""
_PAGE_BYTES = 2**21
_LARGE_PAGES_BYTES = 2**31
"""More than a learner of Atari with ten heads needs."""
