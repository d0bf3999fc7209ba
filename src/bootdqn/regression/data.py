"""The paper's regression task (appendix A): y = x + sin(4 (x + w)) + sin(13 (x + w)) + w with noise w."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FREQUENCIES = (4.0, 13.0)
NOISE_STD = 0.03
"""The standard deviation of the normal noise w; that of y is up to 17 times as large where the sines are steep."""
NUM_POINTS = 20
SUPPORT = ((0.0, 0.6), (0.8, 1.0))
"""The intervals on whose union x is uniform."""
GAP = (SUPPORT[0][1], SUPPORT[1][0])
"""The interval between them, which has no data."""

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)


def draw_inputs(rng: np.random.Generator, num_points: int = NUM_POINTS) -> NDArray[np.float64]:
    """Draw inputs x [N], uniformly on the support."""
    x = rng.uniform(0, sum(high - low for low, high in SUPPORT), num_points)
    return np.where(x < GAP[0], x, x + GAP[1] - GAP[0])


def draw_outputs(rng: np.random.Generator, x: ArrayLike) -> NDArray[np.float64]:
    """Draw noisy outputs y for inputs x."""
    return _output(np.asarray(x, float), rng.normal(0, NOISE_STD, np.shape(x)))


def true_mean(x: ArrayLike) -> NDArray[np.float64]:
    """Return the expectation of y given x."""
    x = np.asarray(x, float)
    return x + sum(np.exp(-0.5 * (f * NOISE_STD) ** 2) * np.sin(f * x) for f in FREQUENCIES)


def true_std(x: ArrayLike) -> NDArray[np.float64]:
    """Return the standard deviation of y given x, by quadrature over w."""
    x = np.asarray(x, float)[..., None]
    squares = np.square(_output(x, NOISE_STD * _NODES) - true_mean(x))
    return np.sqrt(squares @ _NODE_WEIGHTS / np.sum(_NODE_WEIGHTS))


def _output(x: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    return x + sum(np.sin(f * (x + w)) for f in FREQUENCIES) + w
