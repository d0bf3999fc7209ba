"""Model files: safetensors with a JSON header. Nothing is ever unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from bootdqn.errors import UserError, require
from bootdqn.runs.directory import write_atomically
from bootdqn.types import Params

FORMAT = "bootdqn-model-1"


def save_model(path: Path, params: Params, config: dict[str, Any]) -> None:
    """Write parameters and the configuration that explains them."""
    # One key: safetensors does not keep the order of several, and the same run shall give the same bytes.
    header = {"bootdqn": json.dumps({"format": FORMAT, "config": config})}
    write_atomically(path, safetensors.numpy.save(_named(params), metadata=header))


def load_model(path: Path, like: Params) -> tuple[Params, dict[str, Any]]:
    """Read what `save_model` wrote.

    Args:
        path: of the file.
        like: parameters of the network it must fit (arrays, or shapes and dtypes).

    Returns:
        Parameters as numpy arrays in the structure of `like`, and the saved configuration.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("bootdqn", "{}"))
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise UserError(f"no model file at {path}") from None
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is not a readable model file: {error}") from None
    require(
        header.get("format") == FORMAT,
        f"{path} has format {header.get('format')!r}, expected {FORMAT!r}; was it written by another version?",
    )
    expected = _named(like)
    for name, array in expected.items():
        shape = found[name].shape if name in found else None
        require(shape == array.shape, f"{path}: {name} should have shape {array.shape}, got {shape}")
    leaves = [found[name] for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), header["config"]


def _named(params: Params) -> dict[str, Any]:
    """Arrays by their path in the network, such as `layers.0.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    return {
        name: leaf if isinstance(leaf, jax.ShapeDtypeStruct) else np.asarray(leaf)
        for name, (_, leaf) in zip(names, leaves, strict=True)
    }
