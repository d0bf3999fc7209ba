"""C++ kernels for learning from pictures, which XLA does slowly on a CPU.

They are compiled by the machine's C++ compiler when they are first needed, and kept. Where that fails, or on a
GPU, XLA does the work (in `conv_trunk` and `update`), with results that differ in their last bits.
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
"""Time limit for the compiler."""


def why_not() -> str | None:
    """Say why there are no kernels, or None where there are.

    They are then compiled and known to JAX. `make_agent` asks this once for every agent on pictures.
    """
    if os.environ.get("BOOTDQN_KERNELS") == "0":
        return "BOOTDQN_KERNELS is 0"
    if jnp.result_type(float) != jnp.float32:
        return "they are for 32-bit numbers"
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
    """Find the library of all kernels, and compile it unless that has been done before.

    Its name has a checksum of what it is made from, and a file beside it has the checksum of its content: loading
    a damaged library would end the process.
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
    """Run a command and return what it prints."""
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=True, timeout=_COMPILING_SECONDS
    ).stdout


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class OuterProducts(NamedTuple):
    """An array [K, out, in] as a sum over N outer products, which is never written out."""

    left: Array
    """Left factors [N, K, out]."""
    right: Array
    """Right factors [N, in]."""


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
    """Take one step of centred RMSProp for weights [K, out, in].

    The arrays are changed in place where they are not needed any more.

    Args:
        weight: the weights.
        mean: running means of their gradient, of the same shape.
        square: running means of its square, of the same shape.
        gradient: the gradient of the weights.
        rate: the learning rate.
        decay: the decay of the running means.
        epsilon: what is added under the root.

    Returns:
        The weights and both running means after the step.
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


@jax.custom_batching.custom_vmap
def trunk_layers(pictures: Array, *parameters: Array) -> Sequence[Array]:
    """Compute what each of DQN's three convolutions returns [N, ...] for stacks of pictures.

    Under `jax.vmap`, all stacks are in a single call, as long as the parameters are not batched.

    Args:
        pictures: the stacks [N, 4, 84, 84] of bytes.
        parameters: the weight and the bias of each layer, as `conv_trunk.Convolution` has them.
    """
    return _call_trunk(pictures, *parameters)


@trunk_layers.def_vmap
def _trunk_layers_of_batch(size: int, is_batched: Sequence[bool], pictures: Array, *parameters: Array):
    if any(is_batched[1:]):
        axes = [0 if batched else None for batched in is_batched]
        layers = jax.vmap(_call_trunk, in_axes=axes)(pictures, *parameters)
    else:
        flat = trunk_layers(pictures.reshape(-1, *pictures.shape[2:]), *parameters)
        layers = [layer.reshape(size, -1, layer.shape[-1]) for layer in flat]
    return layers, [True] * len(layers)


def _call_trunk(pictures: Array, *parameters: Array) -> Sequence[Array]:
    shapes = [jax.ShapeDtypeStruct((len(pictures), size), jnp.float32) for size in (12_800, 5_184, 3_136)]
    return jax.ffi.ffi_call("BootdqnTrunkForward", shapes, vmap_method="sequential")(pictures, *parameters)


def trunk_gradients(
    pictures: Array, parameters: Sequence[Array], layers: Sequence[Array], gradient: Array
) -> Sequence[Array]:
    """Compute the gradients of the six parameters of DQN's convolutions.

    Args:
        pictures: the stacks [N, 4, 84, 84] of bytes.
        parameters: the weight and the bias of each layer.
        layers: what `trunk_layers` returned for them.
        gradient: the gradient of the last layer [N, 3136].
    """
    shapes = [jax.ShapeDtypeStruct(parameter.shape, jnp.float32) for parameter in parameters]
    call = jax.ffi.ffi_call("BootdqnTrunkBackward", shapes, vmap_method="sequential")
    return call(pictures, *layers, parameters[2], parameters[4], gradient)
