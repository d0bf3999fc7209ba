import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.core.masks import MASK_KINDS, make_mask


def draw_many(kind, probability, num=4000, num_heads=5):
    mask = make_mask(kind, num_heads, probability)
    return np.asarray(jax.vmap(mask)(jax.random.split(jax.random.key(1), num)))


@pytest.mark.parametrize(
    ("kind", "probability", "mean", "variance"),
    [
        ("bernoulli", 0.3, 0.3, 0.21),
        ("bernoulli", 1.0, 1.0, 0.0),
        ("double_or_nothing", 0.5, 1.0, 1.0),
        ("ones", 0.5, 1.0, 0.0),
        ("poisson", 0.5, 1.0, 1.0),
        ("exponential", 0.5, 1.0, 1.0),
    ],
)
def test_moments(kind, probability, mean, variance):
    sample = draw_many(kind, probability)
    # 20,000 draws: five standard errors of the mean, and a wide margin for the variance.
    assert abs(sample.mean() - mean) <= 5 * np.sqrt(variance / sample.size)
    assert abs(sample.var() - variance) <= 0.1 * variance


def test_supports():
    assert set(np.unique(draw_many("bernoulli", 0.5))) == {0.0, 1.0}
    assert set(np.unique(draw_many("double_or_nothing", 0.5))) == {0.0, 2.0}
    poisson = draw_many("poisson", 0.5)
    assert np.array_equal(poisson, np.round(poisson))
    assert (draw_many("exponential", 0.5) > 0).all()


def test_heads_are_independent():
    sample = draw_many("bernoulli", 0.5, num=10_000)
    off_diagonal = np.corrcoef(sample.T)[~np.eye(5, dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.05


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(MASK_KINDS), st.sampled_from([1, 10]), st.floats(0.05, 1.0), st.integers(0, 2**31 - 1))
def test_shape_sign_and_repeatability(kind, num_heads, probability, seed):
    mask = make_mask(kind, num_heads, probability)
    first, second = mask(jax.random.key(seed)), mask(jax.random.key(seed))
    assert first.shape == (num_heads,)
    assert (first >= 0).all()
    np.testing.assert_array_equal(first, second)
