"""Mistakes a user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake the user can mend: the command line shows it as one line, never as a traceback."""


def require(condition: bool, message: str) -> None:
    """Raise `UserError` unless `condition` holds."""
    if not condition:
        raise UserError(message)


def require_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise `UserError` with the nearest known name unless `name` is one of `known`."""
    known = list(known)
    if name in known:
        return
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
    raise UserError(f"unknown {what} {name!r}; {hint}")
