"""Memory of the host: how much is free, and how it is allocated."""

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
    """Raise `UserError` if more memory is needed than is free, where the system tells.

    Args:
        needed: the number of bytes that are needed.
        advice: the end of the message, which says what to do.
    """
    available = available_memory()
    require(
        available is None or needed < available,
        f"the run needs {needed / 1e9:.1f} GB and {(available or 0) / 1e9:.1f} GB of memory is free; {advice}",
    )


def available_memory() -> int | None:
    """Find how many bytes of memory are free; None on systems that do not say so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def zeros_apart(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """Allocate zeros in memory of their own, which the system hands out page by page as it is written to.

    `numpy.zeros` does the same, but not after `keep_large_blocks`: then all of it is written at once, and uses up
    the large pages.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype).reshape(shape)


@cache
def keep_large_blocks() -> None:
    """Let freed large blocks be used again instead of going back to the system, where glibc allocates.

    An update of a large network has temporary arrays of a hundred megabytes. By default each comes from the system
    anew, which clears it page by page: up to a third of the time of an update. This changes the whole process, so
    it is called where a learner from pictures is made, before the first computation and by the first thread:
    threads that have allocated keep their arena, and only one arena can grow so large. Processes that were started
    with `MALLOC_ARENA_MAX=1` have one only.

    The first of that memory is in large pages, where Linux grants them: products of matrices read columns whose
    numbers would otherwise each be in a page of its own.
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
"""The number of an advice in Linux's madvise."""
_PAGE_BYTES = 2**21
_LARGE_PAGES_BYTES = 2**31
"""Bytes in large pages: more than a learner of Atari with ten heads needs."""
