"""The head report card: what every head is worth alone, and how much of their own heads have to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

COLLAPSED = 0.95
"""Mean correlation above which heads count as one."""


class Likeness(NamedTuple):
    """How alike heads are, summed over observations; to be added up."""

    products: NDArray[np.float64]
    """Of the heads' preferences [K, K], a preference being an action's value less the mean over actions."""
    agreements: NDArray[np.float64]
    """Observations on which two heads have the same favourite [K, K]."""
    observations: int

    @classmethod
    def of(cls, q: ArrayLike) -> Likeness:
        """Of values [observations, K, actions]."""
        q = np.asarray(q, float)
        preferences = q - q.mean(axis=2, keepdims=True)
        favourites = q.argmax(axis=2)
        return cls(
            np.einsum("nia,nja->ij", preferences, preferences),
            (favourites[:, :, None] == favourites[:, None, :]).sum(axis=0).astype(float),
            len(q),
        )

    @classmethod
    def sum(cls, parts: Iterable[Likeness]) -> Likeness:
        """Over the observations of all parts; of none, that of one head that has seen nothing."""
        total = cls(np.zeros((1, 1)), np.zeros((1, 1)), 0)
        for part in parts:
            total = cls(
                total.products + part.products,
                total.agreements + part.agreements,
                total.observations + part.observations,
            )
        return total

    @property
    def correlation(self) -> NDArray[np.float64]:
        """Of the preferences of two heads [K, K]: 1 if they are the same but for a factor, 0 if unrelated."""
        size = np.sqrt(np.diag(self.products))
        scale = np.outer(size, size)
        # A head without preferences is like others without, and like no other.
        neither = np.outer(size == 0, size == 0).astype(float)
        found = np.divide(self.products, scale, out=neither, where=scale > 0)
        np.fill_diagonal(found, 1.0)  # whatever rounding says
        return found

    @property
    def agreement(self) -> float:
        """Share of observations on which two heads have the same favourite, mean over pairs; of one head, 1."""
        return _mean_of_pairs(self.agreements) / max(self.observations, 1) if len(self.agreements) > 1 else 1.0

    @property
    def effective_heads(self) -> float:
        """How many unrelated heads would be as diverse: K² over the sum of squared correlations, from 1 to K.

        Heads that want the opposite are as good as unrelated.
        """
        positive = np.maximum(self.correlation, 0)
        return len(positive) ** 2 / float((positive**2).sum())

    @property
    def warning(self) -> str | None:
        """What to know if heads have collapsed onto each other."""
        num_heads = len(self.products)
        if num_heads == 1 or not self.observations:
            return None
        mean = _mean_of_pairs(self.correlation)
        if mean <= COLLAPSED:
            return None
        return (
            f"the heads have collapsed onto each other: {num_heads} are worth {self.effective_heads:.2f} "
            f"(mean correlation {mean:.3f}, the same favourite on {self.agreement:.1%} of observations), so that "
            "it now hardly matters which one acts"
        )


def _mean_of_pairs(matrix: NDArray[np.float64]) -> float:
    """Of all entries off the diagonal."""
    count = len(matrix)
    return float((matrix.sum() - np.trace(matrix)) / (count * (count - 1)))


class PolicyReturns(NamedTuple):
    """What one policy collects."""

    policy: str
    """`vote`, `mean` or such as `head 3`."""
    returns: Sequence[float] | NDArray[np.floating]
    entropy: float
    """Of the heads' vote on its way, in nats."""
    data_share: float | None
    """Of the training data, what this head collected."""


def report_card(policies: Sequence[PolicyReturns], likeness: Likeness, observations: str) -> dict[str, Any]:
    """As JSON.

    Args:
        policies: the vote, the mean and the heads.
        likeness: of the heads.
        observations: those that it was summed over, in words.
    """
    return {
        "observations": observations,
        "policies": [
            {
                "policy": each.policy,
                "episodes": len(each.returns),
                "mean_return": float(np.mean(each.returns, dtype=float)),
                "least_return": float(np.min(each.returns)),
                "largest_return": float(np.max(each.returns)),
                "entropy": round(each.entropy, 6),
                "data_share": each.data_share,
            }
            for each in policies
        ],
        "correlation": likeness.correlation.round(4).tolist(),
        "agreement": round(likeness.agreement, 4),
        "effective_heads": round(likeness.effective_heads, 3),
        "warning": likeness.warning,
    }
