"""A ring to which any number of slots adds at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.replay.ring import add_some, make_ring, ring_size
from bootdqn.types import Transition


def numbered(numbers: Any) -> Transition:
    """Transitions whose every field tells their number."""
    n = np.asarray(numbers, np.int32)
    x = n.astype(np.float32)
    pair = np.stack([n, -n], axis=-1).astype(np.uint8)
    return Transition(pair, n, x, x / 2, pair + np.uint8(1), np.stack([x, x + 1, x + 2], axis=-1))  # type: ignore[arg-type]


add_some_jitted = jax.jit(add_some)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([1, 2, 5, 7]), st.sampled_from([1, 3, 6]), st.data())
def test_adding_some_does_what_a_list_does(capacity, width, data):
    masks = data.draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), max_size=9))
    empty = numbered(0)
    ring = make_ring(empty, capacity)
    naive: list[Transition] = [jax.tree.map(np.zeros_like, empty)] * capacity
    added = 0
    for tick, mask in enumerate(masks):
        numbers = np.arange(width) + tick * width + 1
        ring = add_some_jitted(ring, numbered(numbers), jnp.asarray(mask))
        for number, valid in zip(numbers, mask, strict=True):
            if valid:
                naive[added % capacity] = numbered(number)
                added += 1
        assert ring.added.dtype == jnp.int32
        assert int(ring.added) == added
        assert int(ring_size(ring)) == min(added, capacity)
        for name, found, *expected in zip(Transition._fields, ring.data, *naive, strict=True):
            np.testing.assert_array_equal(found, np.stack(expected), name)
            assert found.dtype == expected[0].dtype
