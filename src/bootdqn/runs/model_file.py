"""Model files: safetensors with a JSON header. Nothing is ever unpickled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bootdqn.errors import UserError, require
from bootdqn.runs.arrays import named_arrays
from bootdqn.runs.directory import write_atomically
from bootdqn.types import Encoding, Params

FORMAT = "bootdqn-model-2"


def save_model(path: Path, params: Params, about: Mapping[str, Any]) -> None:
    """Write a model file with parameters, and a header `about` them."""
    # One key: safetensors does not keep the order of several, and the same run shall give the same bytes.
    header = {"bootdqn": json.dumps({"format": FORMAT, **about})}
    write_atomically(path, safetensors.numpy.save(named_arrays(params), metadata=header))


def read_model(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a model file: its arrays by name, and its header."""
    require(not path.is_dir(), f"{path} is a directory; give a model file, such as {path}/models/last.safetensors")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("bootdqn", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise UserError(f"no model file at {path}") from None
    except (safetensors.SafetensorError, OSError, ValueError, RecursionError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a readable model file: {error}") from None
    found = header.get("format") if isinstance(header, dict) else None
    require(
        found == FORMAT, f"{path} has format {found!r}, expected {FORMAT!r}; was it written by another version?"
    )
    return arrays, header


def model_header(
    config: Mapping[str, Any], layout: Mapping[str, Any], encoding: Encoding, num_actions: int, first_action: int
) -> dict[str, Any]:
    """All that is needed to predict, beside the parameters.

    Args:
        config: the run's configuration, as `RunConfig.record` gives it.
        layout: how observations are laid out in rows.
        encoding: from a row to the network's input.
        num_actions: A.
        first_action: the number that the environment gives to action 0.
    """
    return {
        "config": config,
        "observations": layout,
        "encoding": dataclasses.asdict(encoding),
        "num_actions": num_actions,
        "first_action": first_action,
    }
