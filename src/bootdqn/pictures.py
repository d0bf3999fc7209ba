"""The trunk of convolutions that pictures go through: by a kernel of our own, or as matrix products.

XLA's convolutions are slow on a CPU. One whose kernel is twice its stride is one with a 2x2 kernel and stride 1 on
blocks of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from bootdqn.kernels import trunk_gradients, trunk_layers, why_not

PICTURES = (4, 84, 84)
"""Shape of an observation that is a stack of pictures, the oldest first."""


_SHAPES = [(256, 32), (32,), (512, 64), (64,), (576, 64), (64,)]
"""Of DQN's weights and biases, layer by layer."""


class Convolution(eqx.Module):
    """A convolution on patches, followed by a rectifier."""

    weight: Array
    """[rows * columns * in, out], where rows and columns are of blocks as large as the stride."""
    bias: Array
    """[out]"""

    def __call__(self, patches: Array) -> Array:
        """From patches [pixels, rows * columns * in] to pixels [pixels, out]."""
        return jax.nn.relu(product(patches, self.weight) + self.bias[None])


class PictureTrunk(eqx.Module):
    """The convolutions of DQN: 32 of 8x8 with stride 4, 64 of 4x4 with stride 2, 64 of 3x3."""

    layers: tuple[Convolution, Convolution, Convolution]

    def __call__(self, pictures: Array) -> Array:
        """Features [3136] of a stack of pictures [4, 84, 84] of bytes."""
        parameters = jax.tree.leaves(self.layers)
        shapes = [leaf.shape for leaf in parameters if leaf.dtype == jnp.float32]
        fits = (pictures.shape, pictures.dtype, shapes) == (PICTURES, jnp.uint8, _SHAPES)
        if fits and why_not() is None:
            return _layers_p.bind(pictures[None], *parameters)[-1][0]
        return self.by_xla(pictures)

    def by_xla(self, pictures: Array) -> Array:
        """The same without a kernel."""
        first, second, third = self.layers
        patches = jax.lax.bitcast_convert_type(_patches_of_pictures(pictures), jnp.uint8).reshape(400, 256)
        x = first(patches.astype(jnp.float32) / 255)
        x = second(_patches_of_first(x))
        return third(_patches_of_second(x)).reshape(-1)


def make_picture_trunk(key: Array) -> PictureTrunk:
    """A `PictureTrunk` whose numbers start uniform within 1 / sqrt(in), as those of heads do."""
    layers = []
    for k, (num_in, num_out) in zip(jax.random.split(key, 3), _SHAPES[::2], strict=True):
        draw = jax.random.uniform(k, (num_in + 1, num_out), minval=-1, maxval=1) / math.sqrt(num_in)
        layers.append(Convolution(draw[1:], draw[0]))
    return PictureTrunk(tuple(layers))


def _apart(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`function`, which stays a call of its own in a compiled program.

    XLA's CPU compiler would merge it into what reads its result, and compute every number as often as it is read.
    """
    compiled = jax.jit(function)

    def call(x: Array) -> Array:
        if jax.default_backend() != "cpu":
            return function(x)
        with set_xla_metadata(inlineable="false"):
            return compiled(x)

    return call


@_apart
def _patches_of_pictures(pictures: Array) -> Array:
    """Patches of 8x8 with stride 4 [400, 64] of pictures [4, 84, 84]; four neighbours are one word, to move."""
    words = jax.lax.bitcast_convert_type(pictures.reshape(4, 21, 4, 21, 4), jnp.uint32)
    blocks = words.transpose(1, 3, 0, 2).reshape(21, 21, 16)
    return _side_by_side([blocks[i : i + 20, j : j + 20] for i in range(2) for j in range(2)])


@_apart
def _patches_of_first(x: Array) -> Array:
    """Patches of 4x4 with stride 2 [81, 512] of the first layer's pixels [400, 32]; neighbours move in pairs."""
    pairs = x.reshape(10, 2, 10, 64)
    rows = pairs[:, 0], pairs[:, 1]
    return _side_by_side([row[i : i + 9, j : j + 9] for i in range(2) for j in range(2) for row in rows])


@_apart
def _patches_of_second(x: Array) -> Array:
    """Patches of 3x3 [49, 576] of the second layer's pixels [81, 64]."""
    pixels = x.reshape(9, 9, 64)
    return _side_by_side([pixels[i : i + 7, j : j + 7] for i in range(3) for j in range(3)])


def _side_by_side(parts: Sequence[Array]) -> Array:
    """Patches [rows * columns, in] from the parts [rows, columns, in / parts] of each."""
    patches = jnp.concatenate(parts, axis=-1)
    return patches.reshape(-1, patches.shape[-1])


def product(x: Array, weight: Array) -> Array:
    """`x` [N, in] @ `weight` [in, out].

    A primitive, so that the weight's gradient over a batch is a single product, of the kind that is fast on a CPU,
    also if the batch is made by `jax.vmap`.
    """
    return _product_p.bind(x, weight)


def _weight_gradient(gradient: Array, x: Array, _: Any) -> Array:
    # Without barriers XLA undoes the transpositions, and then multiplies in slow loops.
    transposed = jax.lax.optimization_barrier(gradient.T)
    return jax.lax.optimization_barrier(transposed @ x).T


def _product_of_batch(operands: Sequence[Array], axes: Sequence[int | None]) -> tuple[Array, int]:
    x, weight = operands
    if axes[0] is None or axes[1] is not None:
        return jax.vmap(jnp.matmul, in_axes=tuple(axes))(x, weight), 0
    batch = jnp.moveaxis(x, axes[0], 0)
    return product(batch.reshape(-1, batch.shape[-1]), weight).reshape(*batch.shape[:-1], -1), 0


_product_p = Primitive("product")
_product_p.def_impl(jax.jit(jnp.matmul))
_product_p.def_abstract_eval(
    lambda x, weight: ShapedArray((x.shape[0], weight.shape[1]), jnp.result_type(x, weight))
)
mlir.register_lowering(_product_p, mlir.lower_fun(jnp.matmul, multiple_results=False))
batching.primitive_batchers[_product_p] = _product_of_batch
ad.defbilinear(_product_p, lambda gradient, _, weight: gradient @ weight.T, _weight_gradient)


_layers_p = Primitive("trunk_layers")
"""The kernel (stacks of pictures [N, 4, 84, 84], parameters) -> what layers return [N, ...]; the last is for use.

A primitive, so that a batch made by `jax.vmap` is a single call, and so is its gradient.
"""
_layers_p.multiple_results = True
_layers_p.def_impl(jax.jit(trunk_layers))
_layers_p.def_abstract_eval(lambda *operands: jax.tree.map(_aval, jax.eval_shape(trunk_layers, *operands)))
mlir.register_lowering(_layers_p, mlir.lower_fun(trunk_layers, multiple_results=True))

_tangent_p = Primitive("trunk_tangent")
"""(tangents of the parameters, pictures, parameters, what layers return) -> that of the features."""


def _aval(shape: jax.ShapeDtypeStruct) -> ShapedArray:
    return ShapedArray(shape.shape, shape.dtype)


def _layers_of_batch(operands: Sequence[Array], axes: Sequence[int | None]) -> tuple[list[Array], list[int]]:
    moved = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    pictures, *parameters = moved
    if axes[0] is not None and all(axis is None for axis in axes[1:]):
        layers = _layers_p.bind(pictures.reshape(-1, *PICTURES), *parameters)
        return [layer.reshape(*pictures.shape[:2], -1) for layer in layers], [0, 0, 0]

    def one(own: list[Array | None]) -> list[Array]:
        return _layers_p.bind(*(x if mine is None else mine for x, mine in zip(moved, own, strict=True)))

    own = [x if axis is not None else None for x, axis in zip(moved, axes, strict=True)]
    return jax.lax.map(one, own), [0, 0, 0]


def _layers_and_tangents(primals: Sequence[Array], tangents: Sequence[Any]):
    pictures, *parameters = primals
    layers = _layers_p.bind(*primals)
    given = [ad.instantiate_zeros(tangent) for tangent in tangents[1:]]
    unused = [jnp.zeros_like(layer) for layer in layers[:-1]]
    return layers, [*unused, _tangent_p.bind(*given, pictures, *parameters, *layers)]


def _tangent(*operands: Array) -> Array:
    tangents, pictures, parameters = operands[:6], operands[6], operands[7:13]

    def features(parameters: Sequence[Array]) -> Array:
        first, second, third = (Convolution(*parameters[i : i + 2]) for i in (0, 2, 4))
        return jax.vmap(PictureTrunk((first, second, third)).by_xla)(pictures)

    return jax.jvp(features, (parameters,), (tangents,))[1]


def _gradients(gradient: Any, *operands: Any) -> list[Any]:
    if isinstance(gradient, ad.Zero):
        return [None] * len(operands)
    pictures, parameters, layers = operands[6], operands[7:13], operands[13:]
    return [*trunk_gradients(pictures, parameters, layers, gradient), *[None] * (len(operands) - 6)]


batching.primitive_batchers[_layers_p] = _layers_of_batch
ad.primitive_jvps[_layers_p] = _layers_and_tangents
_tangent_p.def_impl(jax.jit(_tangent))
_tangent_p.def_abstract_eval(lambda *operands: _aval(operands[-1]))
mlir.register_lowering(_tangent_p, mlir.lower_fun(_tangent, multiple_results=False))
batching.primitive_batchers[_tangent_p] = lambda operands, axes: (jax.vmap(_tangent, in_axes=axes)(*operands), 0)
ad.primitive_transposes[_tangent_p] = _gradients
