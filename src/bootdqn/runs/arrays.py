"""Trees of arrays as named arrays, the way files hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bootdqn.errors import require


def named_arrays(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by path, such as `layers.0.weight`; random keys become words, shapes stay shapes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): leaf if isinstance(leaf, jax.ShapeDtypeStruct) else _words(leaf) for path, leaf in leaves}


def restore(like: Any, arrays: Mapping[str, np.ndarray], where: object) -> Any:
    """The tree of `like` (arrays, or shapes and dtypes), with its leaves from `named_arrays` of another.

    Args:
        like: what is expected; names, shapes and dtypes must agree.
        arrays: may hold more than is needed.
        where: they came from, for the message if something does not fit.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = _name(path)
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        expected = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
        array = arrays.get(name)
        got = None if array is None else (array.shape, str(array.dtype))
        wanted = expected.shape, str(expected.dtype)
        require(got == wanted, f"{where}: {name} should be {wanted[1]} of shape {wanted[0]}, got {_describe(got)}")
        found.append(jax.random.wrap_key_data(jnp.asarray(array)) if is_key else array)
    return jax.tree.unflatten(structure, found)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _words(leaf: Any) -> np.ndarray:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    # In the order that files hold: safetensors writes memory as it lies.
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf, order="C")


def _describe(got: tuple[Any, str] | None) -> str:
    return "nothing" if got is None else f"{got[1]} of shape {got[0]}"
