"""Code of our own for what XLA makes slow on a CPU: learning from pictures.

It is compiled by the machine's C++ compiler when it is first needed, and kept. Where that fails, or on a GPU, XLA
does the same by itself (in `pictures` and `updates`); the results differ in their last bits.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jax import Array

_HANDLERS = ("BootdqnRMSProp", "BootdqnTrunkForward", "BootdqnTrunkBackward")
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-shared", "-fPIC", "-w")
_COMPILING_SECONDS = 300
"""After which a compiler is given up."""


def why_not() -> str | None:
    """Why there are no kernels; None where there are: then they are compiled, and known to JAX."""
    if os.environ.get("BOOTDQN_KERNELS") == "0":
        return "BOOTDQN_KERNELS is 0"
    return _why_not_here()


@cache
def _why_not_here() -> str | None:
    if jax.default_backend() != "cpu":
        return "they are for CPUs"
    compiler = shlex.split(os.environ.get("CXX", "")) or [*filter(shutil.which, ("c++", "g++", "clang++"))][:1]
    if not compiler:
        return "there is no C++ compiler (c++, g++ or clang++)"
    try:
        library = ctypes.CDLL(str(compiled(compiler)))
        handlers = [jax.ffi.pycapsule(getattr(library, name)) for name in _HANDLERS]
    except subprocess.CalledProcessError as error:
        lines = [*(error.stderr or "").splitlines(), str(error)]
        return f"{compiler[0]} does not compile them: {next(filter(_says_why, lines), lines[-1])}"
    except (OSError, RuntimeError, AttributeError, subprocess.TimeoutExpired) as error:
        return str(error)
    for name, handler in zip(_HANDLERS, handlers, strict=True):
        jax.ffi.register_ffi_target(name, handler, platform="cpu")
    return None


def _says_why(line: str) -> bool:
    return "error" in line


def compiled(compiler: Sequence[str]) -> Path:
    """The library of all kernels: compiled now, or when somebody first asked for the same.

    Its name has a checksum of what it is made from, and a file beside it has its own: to load a library that was
    damaged would end the process.
    """
    folder = Path(__file__).parent
    texts = [path.read_text() for path in sorted([*folder.glob("*.h"), *folder.glob("*.cc")])]
    about = (
        texts,
        jaxlib.version.__version__,
        platform.machine(),
        *compiler,
        _run(*compiler, "--version"),
        _FLAGS,
    )
    cached = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "bootdqn"
    path = cached / f"kernels-{_checksum(repr(about).encode())[:16]}.so"
    proof = path.with_suffix(".sha256")
    if not (path.exists() and proof.exists() and proof.read_text() == _checksum(path.read_bytes())):
        cached.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached) as own:  # so that nobody sees half of it
            made = Path(own) / path.name
            sources = map(str, folder.glob("*.cc"))
            _run(*compiler, *_FLAGS, f"-I{jax.ffi.include_dir()}", *sources, "-o", str(made))
            own_proof = made.with_suffix(".sha256")
            own_proof.write_text(_checksum(made.read_bytes()))
            made.replace(path)
            own_proof.replace(proof)
    return path


def _run(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=True, timeout=_COMPILING_SECONDS
    ).stdout


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class OuterProducts(NamedTuple):
    """An array [K, out, in] as a sum of outer products, which nobody has written out."""

    left: Array
    """[N, K, out]"""
    right: Array
    """[N, in]"""


def centred_rmsprop(
    weight: Array,
    mean: Array,
    square: Array,
    gradient: OuterProducts,
    *,
    rate: float,
    decay: float,
    epsilon: float,
) -> Sequence[Array]:
    """Weights [K, out, in] and the running means of their gradient and of its square, after one step.

    In place where these are not needed any more. `epsilon` is under the root.
    """
    left, right = (factor.astype(jnp.float32) for factor in gradient)
    call = jax.ffi.ffi_call(
        "BootdqnRMSProp",
        [jax.ShapeDtypeStruct(weight.shape, jnp.float32)] * 3,
        input_output_aliases={0: 0, 1: 1, 2: 2},
        vmap_method="sequential",
    )
    numbers = {"rate": np.float32(rate), "decay": np.float32(decay), "epsilon": np.float32(epsilon)}
    return call(weight, mean, square, left.reshape(len(left), -1).T, right, **numbers)


def trunk_layers(pictures: Array, *parameters: Array) -> Sequence[Array]:
    """What DQN's three convolutions make of stacks of pictures [N, 4, 84, 84] of bytes [N, ...].

    Args:
        pictures: the stacks.
        parameters: the weight and the bias of each layer, as `pictures.Convolution` has them.
    """
    shapes = [jax.ShapeDtypeStruct((len(pictures), size), jnp.float32) for size in (12_800, 5_184, 3_136)]
    return jax.ffi.ffi_call("BootdqnTrunkForward", shapes, vmap_method="sequential")(pictures, *parameters)


def trunk_gradients(
    pictures: Array, parameters: Sequence[Array], layers: Sequence[Array], gradient: Array
) -> Sequence[Array]:
    """The gradients of the parameters, from that of the last layer [N, 3136]."""
    shapes = [jax.ShapeDtypeStruct(parameter.shape, jnp.float32) for parameter in parameters]
    call = jax.ffi.ffi_call("BootdqnTrunkBackward", shapes, vmap_method="sequential")
    return call(pictures, *layers, parameters[2], parameters[4], gradient)
