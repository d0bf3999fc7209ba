"""Trees of arrays by name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.errors import UserError
from bootdqn.runs.arrays import named_arrays, restore
from bootdqn.runs.checkpoint import Checkpoints
from helpers import assert_same_arrays, silent, small_agent, trees_equal


def a_tree() -> dict[str, Any]:
    return {
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4), (2, 3)),
        "nested": [np.arange(3, dtype=np.int16), (jnp.float32(2.5), np.zeros((2, 0), bool))],
        "turned": np.arange(6.0).reshape(2, 3).T,
    }


def assert_same_trees(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    found, expected = named_arrays(found), named_arrays(expected)
    assert_same_arrays(found, expected)


def test_named_arrays_come_back():
    tree = a_tree()
    arrays = named_arrays(tree)
    assert set(arrays) == {"key", "keys", "nested.0", "nested.1.0", "nested.1.1", "turned"}
    assert all(type(array) is np.ndarray for array in arrays.values())
    assert arrays["keys"].shape == (2, 3, 2)
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, {**tree, "turned": 0.0}))
    shapes["turned"] = jax.ShapeDtypeStruct((3, 2), np.dtype(np.float64))
    for like in (tree, shapes):
        found = restore(like, {**arrays, "more": np.zeros(2)}, "there")
        assert_same_trees(found, tree)
        assert found["key"].dtype == found["keys"].dtype == tree["key"].dtype
        assert jax.random.bits(found["key"]) == jax.random.bits(tree["key"])
        assert jax.random.bits(found["keys"][1, 2]) == jax.random.bits(tree["keys"][1, 2])


def test_named_arrays_come_back_from_a_checkpoint(tmp_path):
    tree = a_tree()
    Checkpoints(tmp_path).save(1, info={}, arrays=named_arrays(tree))
    found = Checkpoints(tmp_path).load(silent)
    assert found is not None
    assert_same_trees(restore(tree, found.arrays, tmp_path), tree)


def test_a_learner_comes_back_from_a_checkpoint(tmp_path):
    _, agent = small_agent()
    learner = agent.init(jax.random.key(0))
    Checkpoints(tmp_path).save(1, info={}, arrays=named_arrays(learner))
    found = Checkpoints(tmp_path).load(silent)
    assert found is not None
    assert trees_equal(restore(jax.eval_shape(lambda: learner), found.arrays, tmp_path), learner)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "nested.0",
            np.zeros(4, np.int16),
            r"nested\.0 should be int16 of shape \(3,\), got int16 of shape \(4,\)",
        ),
        (
            "nested.0",
            np.zeros(3, np.int32),
            r"nested\.0 should be int16 of shape \(3,\), got int32 of shape \(3,\)",
        ),
        ("nested.1.0", np.zeros(1, np.float32), r"nested\.1\.0 should be float32 of shape \(\), got float32 of"),
        ("turned", None, r"turned should be float64 of shape \(3, 2\), got nothing"),
        ("key", np.zeros(3, np.uint32), r"key should be uint32 of shape \(2,\), got uint32 of shape \(3,\)"),
        ("key", np.zeros(2, np.int32), r"key should be uint32 of shape \(2,\), got int32 of shape \(2,\)"),
        ("keys", None, r"keys should be uint32 of shape \(2, 3, 2\), got nothing"),
    ],
)
def test_arrays_that_do_not_fit_are_named(name, value, message):
    arrays = {key: array for key, array in named_arrays(a_tree()).items() if key != name}
    if value is not None:
        arrays[name] = value
    with pytest.raises(UserError, match=f"^there: {message}"):
        restore(a_tree(), arrays, "there")
