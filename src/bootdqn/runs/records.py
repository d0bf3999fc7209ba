"""What kind of run a recorded configuration belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootdqn.errors import UserError
from bootdqn.tabular.agents import TABULAR_AGENTS

LOOPS = ("compiled", "tabular", "host", "cluster")
"""The training loops, as the field `loop` of a run's configuration names them."""
PER_SEED = ("compiled", "tabular")
"""The loops that train several seeds side by side and count episodes; the others train one and count steps."""


def loop_of(record: Mapping[str, Any], path: Path | str = "config.json") -> str:
    """The training loop of a run, one of `LOOPS`.

    Runs recorded before the field `loop` existed are told apart by their other fields.

    Args:
        record: the configuration from a run's `config.json`, or from the header of a model file.
        path: the file that it was read from, for the error message.

    Raises:
        UserError: if the record belongs to none of the loops.
    """
    if "loop" in record:
        if record["loop"] not in LOOPS:
            raise UserError(f"{path} is not of this version: unknown loop {record['loop']!r}")
        return record["loop"]
    if "episodes" in record:
        return "tabular" if str(record.get("agent_name")) in TABULAR_AGENTS else "compiled"
    if "steps" in record:
        return "cluster" if record.get("num_actors") else "host"
    raise UserError(f"{path} is not of this version: it has neither steps nor episodes")
