"""Flags of the command line that are fields of a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, fields, make_dataclass
from typing import Annotated, Any, get_type_hints

import tyro

_COUNT = "num_"
"""Fields with this prefix are flags without it: `num_heads` is `--heads`."""


def flag_name(name: str) -> str:
    """The flag of a field, such as `--heads` for `num_heads`."""
    return f"--{name.removeprefix(_COUNT).replace('_', '-')}"


def with_flags(config: Any, shown: Iterable[str] | None = None, **kinds: Any) -> Any:
    """A configuration as tyro needs it: of a subclass whose counts are flags without their prefix.

    Args:
        config: a frozen dataclass, whose values become the defaults.
        shown: the fields that are flags; by default all.
        kinds: types of fields, in place of those that their class declares.
    """
    hints = {**get_type_hints(type(config)), **kinds}
    names = [each.name for each in fields(config)]
    hidden = set() if shown is None else set(names) - set(shown)
    annotated = [
        (
            name,
            Annotated[hints[name], tyro.conf.Suppress if name in hidden else _argument(name)],
            field(default=getattr(config, name)),
        )
        for name in names
        if name in hidden or name in kinds or name.startswith(_COUNT)
    ]
    subclass = make_dataclass(type(config).__name__, annotated, bases=(type(config),), frozen=True, kw_only=True)
    return subclass(**vars(config))


def without_flags(kind: type[Any], parsed: Any) -> Any:
    """The configuration of a class that was parsed as `with_flags` made it."""
    return kind(**vars(parsed))


def _argument(name: str) -> Any:
    return tyro.conf.arg(name=name.removeprefix(_COUNT).replace("_", "-"))
