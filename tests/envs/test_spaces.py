"""Observations of every space as rows of arrays, one by one and in batches."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bootdqn.envs.spaces import Observations, action_count, space_layout
from bootdqn.errors import UserError
from scripted import ARRAY

SPACES: dict[str, spaces.Space[Any]] = {
    "float32": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "float64": spaces.Box(-2, 2, (2, 3), np.float64),
    "int": spaces.Box(-5, 9, (2,), np.int64),
    "image": spaces.Box(0, 255, (4, 3, 2), np.uint8),
    "small bytes": spaces.Box(0, 3, (5,), np.uint8),
    "number": spaces.Box(-1, 1, (), np.float32),
    "discrete": spaces.Discrete(5),
    "discrete from -2": spaces.Discrete(4, start=-2),
    "discrete bytes": spaces.Discrete(4, start=250, dtype=np.uint8),
    "discrete far away": spaces.Discrete(4, start=2**40),
    "binary": spaces.MultiBinary(5),
    "binary 2-D": spaces.MultiBinary([2, 3]),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-discrete from": spaces.MultiDiscrete([3, 2], start=[7, -1]),
    "multi-discrete bytes": spaces.MultiDiscrete([3, 2], dtype=np.uint8, start=[7, 253]),
    "multi-discrete 2-D": spaces.MultiDiscrete(np.array([[3, 2], [1, 4]]), start=np.array([[0, 1], [2, 3]])),
    "tuple": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2, 2)))),
    "tuple of one": spaces.Tuple((spaces.Discrete(3, start=1),)),
    "dict": spaces.Dict({"z": spaces.Discrete(3), "a": spaces.Box(0, 255, (2,), np.uint8)}),
    "dict in its own order": spaces.Dict([("z", spaces.Discrete(3)), ("a", spaces.Box(-1, 1, ()))]),
    "nested": spaces.Dict(
        {
            "pair": spaces.Tuple((spaces.MultiDiscrete([2, 3], start=[1, 1]), spaces.MultiBinary([2, 2]))),
            "inner": spaces.Dict({"deep": spaces.Tuple((spaces.Box(-1, 1, (1, 2), np.float64),))}),
            "last": spaces.Discrete(2, start=-1),
        }
    ),
    "tuple of tuples": spaces.Tuple(
        (spaces.Tuple((spaces.MultiBinary(2),)), spaces.Dict({"b": spaces.Discrete(2)}))
    ),
}
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))


def observations_of(space: spaces.Space[Any]) -> Observations:
    return Observations(space_layout(space))


def batch_of(space: spaces.Space[Any], singles: list[Any]) -> Any:
    return concatenate(space, singles, create_empty_array(space, len(singles)))


def samples(space: spaces.Space[Any], seed: int, count: int) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def flatten(space: spaces.Space[Any], obs: Any) -> NDArray[Any]:
    return np.asarray(spaces.flatten(space, obs))


def read(observations: Observations, obs: Any) -> Any:
    """The rows of what somebody hands over, be it one or a batch."""
    return observations.rows(obs) if observations.is_batch(obs) else observations.row(obs)


@each_space
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 4))
def test_rows_are_those_of_the_single_observations(space, seed, count):
    observations, singles = observations_of(space), samples(space, seed, count)
    batch = batch_of(space, singles)
    rows = observations.rows(batch)
    assert rows.dtype == observations.dtype
    assert rows.shape == (count, *observations.shape)
    for index, single in enumerate(singles):
        row = observations.row(single)
        assert row.dtype == observations.dtype
        np.testing.assert_array_equal(row, rows[index])
        flat = flatten(space, single)
        if isinstance(space, spaces.Discrete):
            assert row == single - int(space.start)
            assert flat[int(row)] == 1
        else:
            np.testing.assert_array_equal(row, flat.astype(observations.dtype))
        assert not observations.is_batch(single)
        np.testing.assert_array_equal(read(observations, single), row)
    assert observations.is_batch(batch)
    np.testing.assert_array_equal(read(observations, batch), rows)


@each_space
def test_rows_are_the_input_that_the_encoding_expects(space):
    observations = observations_of(space)
    single = samples(space, 0, 1)[0]
    features = observations.encoding(jnp.asarray(observations.row(single)))
    scale = 255 if observations.encoding.kind == "bytes" else 1
    assert observations.encoding.size == spaces.flatdim(space)
    np.testing.assert_allclose(features, flatten(space, single) / scale, rtol=1e-6)


def test_only_whole_bytes_stay_bytes():
    kinds = {name: observations_of(space).encoding.kind for name, space in SPACES.items()}
    assert {name for name, kind in kinds.items() if kind == "bytes"} == {"image"}
    indices = {name for name, space in SPACES.items() if isinstance(space, spaces.Discrete)}
    assert {name for name, kind in kinds.items() if kind == "one_hot"} == indices


@each_space
def test_layouts_survive_json(space):
    layout = space_layout(space)
    again = json.loads(json.dumps(layout))
    assert again == layout
    obs = samples(space, 3, 1)[0]
    np.testing.assert_array_equal(Observations(again).row(obs), Observations(layout).row(obs))


def test_a_batch_may_be_empty():
    for space in SPACES.values():
        observations = observations_of(space)
        assert observations.rows(create_empty_array(space, 0)).shape == (0, *observations.shape)


@each_space
def test_rows_do_not_change_with_what_they_came_from(space):
    observations = observations_of(space)
    batch = batch_of(space, samples(space, 1, 3))
    rows = observations.rows(batch)
    before = rows.copy()
    for leaf in jax.tree.leaves(batch):
        leaf[...] = 0
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Graph(spaces.Box(-1, 1, (2,)), None),
        spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))),
        spaces.Dict({"fine": spaces.Discrete(2), "name": spaces.Text(5)}),
        spaces.Tuple((spaces.Tuple((spaces.Sequence(spaces.Discrete(3)),)),)),
    ],
    ids=str,
)
def test_observations_of_no_fixed_size_are_refused(space):
    with pytest.raises(UserError, match=r"not supported; supported are Box, Discrete, .* Tuple and Dict"):
        space_layout(space)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (1,)), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)])
def test_actions_that_are_no_choice_of_one_are_refused(space):
    with pytest.raises(UserError, match=f"actions of {type(space).__name__} are not supported; supported is Disc"):
        action_count(space)
    assert action_count(spaces.Discrete(4, start=-2)) == (4, -2)


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (0,)), spaces.Tuple(()), spaces.Dict({})], ids=str)
def test_observations_must_hold_something(space):
    with pytest.raises(UserError, match="must not be empty"):
        observations_of(space)


PAIR = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
WRONG: list[tuple[spaces.Space[Any], Any]] = [
    *[(ARRAY, np.zeros(shape)) for shape in ((), (2,), (4,), (3, 1), (1, 1, 3), (3, 4), (0,))],
    (ARRAY, [[1, 2, 3], [4, 5]]),
    (ARRAY, None),
    (ARRAY, {"a": 1}),
    (SPACES["number"], np.zeros((2, 1))),
    (SPACES["image"], np.zeros((3, 4, 2))),
    (SPACES["image"], np.zeros((1, 4, 3, 3))),
    (spaces.Discrete(3), np.zeros((2, 2), int)),
    (spaces.Discrete(3), [[0], [1, 2]]),
    (SPACES["binary 2-D"], np.zeros(6)),
    (SPACES["multi-discrete"], np.zeros(2, int)),
    (SPACES["multi-discrete"], np.zeros((3, 2), int)),
    (SPACES["multi-discrete 2-D"], np.zeros((3, 2), int)),
    (PAIR, {"a": np.zeros(3), "b": 1}),
    (PAIR, {"a": np.zeros(2), "b": [1, 2]}),
    (PAIR, {"a": np.zeros((2, 2)), "b": [1, 2, 0]}),
    (PAIR, {"a": np.zeros((2, 2)), "b": 1}),
    (PAIR, {"a": np.zeros(2)}),
    (PAIR, {"b": 1}),
    (PAIR, (np.zeros(2), 1)),
    (PAIR, np.zeros(3)),
    (PAIR, None),
    (SPACES["tuple"], (1,)),
    (SPACES["tuple"], (1, np.zeros((2, 2)), 0)),
    (SPACES["tuple"], (1, np.zeros((2, 3)))),
    (SPACES["tuple"], ([1, 2], np.zeros((1, 2, 2)))),
    (SPACES["tuple"], {"a": 1}),
    (SPACES["nested"], {"pair": 1, "inner": 2, "last": 0}),
    (SPACES["tuple of tuples"], ((np.zeros(2),), {"c": 1})),
]


@pytest.mark.parametrize(("space", "obs"), WRONG, ids=lambda value: repr(value).replace("\n", ""))
def test_observations_of_the_wrong_shape_are_refused(space, obs):
    with pytest.raises(UserError, match="expected"):
        read(observations_of(space), obs)
