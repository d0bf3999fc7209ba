"""Mistakes a user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_type_hints


class UserError(Exception):
    """A mistake the user can mend: the command line shows it as one line, never as a traceback."""


def require(condition: bool, message: str) -> None:
    """Raise `UserError` unless `condition` holds."""
    if not condition:
        raise UserError(message)


def require_known(what: str, name: str, known: Iterable[str], more: Iterable[str] = ()) -> None:
    """Raise `UserError` with the nearest name unless `name` is one of `known`, or of `more`, a long list."""
    known, more = list(known), list(more)
    if name in known or name in more:
        return
    nearest = difflib.get_close_matches(name, known + more, n=1, cutoff=0.4)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
    raise UserError(f"unknown {what} {name!r}; {hint}")


def require_types(config: Any) -> None:
    """Raise `UserError` unless numbers, texts and tuples of numbers in the fields of a dataclass are such."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if kind is int:
            require(isinstance(value, int), f"{name} must be a whole number, got {value!r}")
        elif kind is float:
            require(isinstance(value, int | float), f"{name} must be a number, got {value!r}")
        elif kind in (str, str | None):
            require(
                isinstance(value, str) or (value is None and kind is not str),
                f"{name} must be text, got {value!r}",
            )
        elif kind == tuple[int, ...]:
            whole = isinstance(value, tuple | list) and all(isinstance(number, int) for number in value)
            require(whole, f"{name} must be whole numbers, such as (64,) or (50, 50), got {value!r}")
