from collections import deque

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.replay.ring import add, make_ring, ring_capacity, ring_size, sample
from bootdqn.types import Transition


def numbered(index: int) -> Transition:
    """A transition whose every field tells its number."""
    i = np.float32(index)
    number, following = np.int32(index), np.int32(index + 1)
    return Transition(number, number, i, i / 2, following, np.full(3, i))  # type: ignore[arg-type]


ADD, SAMPLE = jax.jit(add), jax.jit(sample, static_argnums=2)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 3, 7]), st.integers(0, 20))
def test_ring_keeps_what_a_deque_keeps(capacity, count):
    ring, naive = make_ring(numbered(0), capacity), deque(maxlen=capacity)
    for index in range(count):
        ring = ADD(ring, numbered(index))
        naive.append(numbered(index))
    assert ring_capacity(ring) == capacity
    assert int(ring_size(ring)) == len(naive)
    stored = {int(i) for i in np.asarray(ring.data.action)[: len(naive)]}
    assert stored == {int(t.action) for t in naive}
    if naive:
        drawn = jax.tree.map(np.asarray, SAMPLE(jax.random.key(count), ring, 64))
        assert {int(i) for i in drawn.action} <= stored
        # Fields of one transition stay together.
        np.testing.assert_array_equal(drawn.reward, drawn.action)
        np.testing.assert_array_equal(drawn.next_obs, drawn.obs + 1)
        np.testing.assert_array_equal(drawn.discount, drawn.action / 2)
        np.testing.assert_array_equal(drawn.mask, np.repeat(np.asarray(drawn.reward)[:, None], 3, axis=1))


def test_sampling_is_uniform_over_what_is_there():
    ring = make_ring(numbered(0), 100)
    for index in range(8):
        ring = ADD(ring, numbered(index))
    counts = np.bincount(np.asarray(SAMPLE(jax.random.key(0), ring, 8000).action), minlength=8)
    assert len(counts) == 8
    # Chi-squared with 7 degrees of freedom: 29.9 has probability 1e-4.
    assert ((counts - 1000) ** 2 / 1000).sum() < 29.9
