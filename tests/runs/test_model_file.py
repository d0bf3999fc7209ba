"""Model files: what is read back, and that no file does harm."""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.errors import UserError
from bootdqn.runs import model_file
from bootdqn.runs.model_file import read_model, save_model
from helpers import assert_same_arrays, load_model, small_agent, trees_equal


def test_models_of_arrays_that_are_not_contiguous(tmp_path):
    params = {
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "some": np.arange(8)[::2],
        "one": np.array(2),
    }
    save_model(tmp_path / "m.safetensors", params, {})
    loaded, _ = load_model(tmp_path / "m.safetensors", params)
    assert_same_arrays(loaded, params)


def hostile(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header, and any length that it is said to have."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def about(text: str) -> dict[str, Any]:
    return {"__metadata__": {"bootdqn": text}}


def tensor(dtype: str, shape: list[int], size: int) -> bytes:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    return hostile({**about(json.dumps({"format": model_file.FORMAT})), "w": entry}, b"\1" * size)


GOOD = safetensors.numpy.save(
    {"w": np.arange(4.0)}, metadata={"bootdqn": json.dumps({"format": model_file.FORMAT, "env": "x"})}
)
HOSTILE = {
    "empty": b"",
    "one byte": b"\1",
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "text": b"this is no file of tensors at all",
    "cut in the header": GOOD[:20],
    "cut in the data": GOOD[:-1],
    "too long": GOOD + b"\0",
    "long header": hostile(b"{}", length=10**8),
    "huge header": hostile(b"{}", length=2**62),
    "largest header": hostile(b"{}", length=2**64 - 1),
    "header is a list": hostile([]),
    "header is nested": hostile(b"[" * 100_000),
    "header is a nested object": hostile(b'{"a":' * 100_000),
    "header is no text": hostile(b"\xff\xfe{}"),
    "no information": hostile({}),
    "information is a number": hostile({"__metadata__": {"bootdqn": 3}}),
    "information is a list": hostile({"__metadata__": [1]}),
    "about is empty": hostile(about("")),
    "about is cut": hostile(about('{"format": ')),
    "about is a list": hostile(about("[]")),
    "about is null": hostile(about("null")),
    "about is a nested list": hostile(about("[" * 200_000)),
    "about is a nested object": hostile(about('{"a":' * 200_000)),
    "about is a long number": hostile(about("1" * 10_000)),
    "another format": hostile(about('{"format": "bootdqn-model-1"}')),
    "format is a list": hostile(about('{"format": ["x"]}')),
    "unknown dtype": tensor("X7", [1], 4),
    "shape that does not fit": tensor("F32", [2], 4),
    "huge shape": tensor("F32", [2**62, 2**62], 4),
    "huge empty shape": tensor("F32", [2**62, 0], 0),
    "many axes": tensor("F32", [1] * 100, 4),
    "negative shape": tensor("F32", [-1], 4),
    "offsets beyond the end": hostile({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"1234"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_model_files_are_refused(name, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(UserError, match=re.escape(str(path))):
        read_model(path)


@pytest.mark.parametrize(("dtype", "count"), [("BF16", 1), ("F8_E4M3", 2), ("F8_E5M2", 2), ("F4", 4), ("C64", 0)])
def test_numbers_of_other_kinds_are_refused(dtype, count, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(tensor(dtype, [count], 2 if count else 0))
    with pytest.raises(UserError, match=re.escape(str(path))):
        load_model(path, {"w": np.zeros(count, np.float32)})


def test_what_is_no_file_is_no_model(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "none", tmp_path / "none" / "none", tmp_path / "file" / "none"):
        with pytest.raises(UserError, match=re.escape(str(path))):
            read_model(path)
    with pytest.raises(UserError):
        read_model(Path(os.devnull))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255), st.booleans())
def test_a_changed_byte_of_a_model_raises_nothing_else(at, change, cut):
    content = bytearray(GOOD)
    content[at] ^= change
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.safetensors")
        path.write_bytes(GOOD[:at] if cut else content)
        try:
            arrays, header = read_model(path)
        except UserError:
            return
        assert not cut
        assert header["format"] == model_file.FORMAT
        assert all(isinstance(array, np.ndarray) for array in arrays.values())


def test_model_round_trip(tmp_path):
    _, agent = small_agent(trunk_hidden=(6,))
    params = agent.init(jax.random.key(3)).params
    save_model(tmp_path / "m.safetensors", params, {"config": {"env": "chain:9"}})
    loaded, header = load_model(tmp_path / "m.safetensors", jax.eval_shape(lambda: params))
    assert trees_equal(params, loaded)
    assert header["config"] == {"env": "chain:9"}
    names = safetensors.numpy.load_file(tmp_path / "m.safetensors").keys()
    assert "layers.0.weight" in names
    assert "trunk.layers.0.bias" in names


def test_bad_model_files_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    _, agent = small_agent()
    params = agent.init(jax.random.key(0)).params
    with pytest.raises(UserError, match="no model file"):
        load_model(path, params)
    save_model(path, params, {})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a readable model file"):
        load_model(path, params)
    path.write_bytes(b"\x80\x04pickled nonsense")
    with pytest.raises(UserError, match="not a readable model file"):
        load_model(path, params)
    path.write_bytes(safetensors.numpy.save({"x": np.zeros(3)}))
    with pytest.raises(UserError, match="has format None"):
        load_model(path, params)
    _, wider = small_agent(hidden=(9,))
    save_model(path, params, {})
    with pytest.raises(
        UserError, match=r"layers.0.weight should be float32 of shape \(3, 9, 2\), got .* \(3, 4, 2\)"
    ):
        load_model(path, wider.init(jax.random.key(0)).params)
