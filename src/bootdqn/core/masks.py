"""Bootstrap masks: which head learns how much from a piece of data (paper, appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

MaskKind = Literal["bernoulli", "double_or_nothing", "ones", "poisson", "exponential"]
MASK_KINDS: tuple[MaskKind, ...] = get_args(MaskKind)


_NOISE = 2**31 - 1
"""Sets the key of noise apart from those of batches."""


def draw_noise(key: Array, scale: float, shape: tuple[int, ...]) -> Array | None:
    """Draw what is added to rewards, one number per head, from the key of the batch; None if its scale is 0."""
    return scale * jax.random.normal(jax.random.fold_in(key, _NOISE), shape) if scale > 0 else None


def make_mask(kind: MaskKind, num_heads: int, probability: float) -> Callable[[Array], Array]:
    """Make a sampler of bootstrap weights.

    Args:
        kind: `bernoulli` gives 1 with `probability`, else 0; `double_or_nothing` gives 2 or 0 with equal chance;
            `ones` shares all data between all heads; `poisson` and `exponential` have mean 1.
        num_heads: the number of heads K.
        probability: the probability of a 1, for `bernoulli` only.

    Returns:
        A function (key) -> weights [K].
    """
    shape = (num_heads,)
    samplers: dict[MaskKind, Callable[[Array], Array]] = {
        "bernoulli": lambda key: jax.random.bernoulli(key, probability, shape).astype(jnp.float32),
        "double_or_nothing": lambda key: 2.0 * jax.random.bernoulli(key, 0.5, shape).astype(jnp.float32),
        "ones": lambda key: jnp.ones(shape),
        "poisson": lambda key: jax.random.poisson(key, 1.0, shape).astype(jnp.float32),
        "exponential": lambda key: jax.random.exponential(key, shape),
    }
    return samplers[kind]
