"""The head report card: the returns of every head alone, and how similar the heads are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

COLLAPSED = 0.95
"""The heads count as collapsed if their mean correlation exceeds this."""


class Likeness(NamedTuple):
    """How similar the heads are, as sums over observations, so that several results can be added up."""

    products: NDArray[np.float64]
    """Inner products of the heads' advantages [K, K]: values of actions minus their mean over actions."""
    agreements: NDArray[np.float64]
    """Number of observations for which two heads have the same greedy action [K, K]."""
    observations: int

    @classmethod
    def of(cls, q: ArrayLike) -> Likeness:
        """The similarity of heads with action values `q` [observations, K, actions]."""
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
        """The similarity over the observations of all parts; without parts, that of one head."""
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
        """Correlation of the advantages of two heads [K, K]: 1 if they are proportional, 0 if unrelated."""
        size = np.sqrt(np.diag(self.products))
        scale = np.outer(size, size)
        # Heads whose values are equal for all actions count as similar to each other and to no others.
        neither = np.outer(size == 0, size == 0).astype(float)
        found = np.divide(self.products, scale, out=neither, where=scale > 0)
        np.fill_diagonal(found, 1.0)  # exactly, in spite of rounding
        return found

    @property
    def agreement(self) -> float:
        """Share of observations for which two heads have the same greedy action, averaged over pairs of heads."""
        return _mean_of_pairs(self.agreements) / max(self.observations, 1) if len(self.agreements) > 1 else 1.0

    @property
    def effective_heads(self) -> float:
        """The number of unrelated heads that would be as diverse, from 1 to K.

        It is K² divided by the sum of squared correlations, where negative correlations count as 0.
        """
        positive = np.maximum(self.correlation, 0)
        return len(positive) ** 2 / float((positive**2).sum())

    @property
    def warning(self) -> str | None:
        """A warning if the heads have collapsed onto each other, otherwise None."""
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
    """The mean of all entries off the diagonal."""
    count = len(matrix)
    return float((matrix.sum() - np.trace(matrix)) / (count * (count - 1)))


class PolicyReturns(NamedTuple):
    """The returns of one policy in an evaluation."""

    policy: str
    """Name of the policy: `vote`, `mean`, or the like of `head 3`."""
    returns: Sequence[float] | NDArray[np.floating]
    entropy: float
    """Mean entropy of the heads' vote over the policy's steps, in nats."""
    data_share: float | None
    """Share of the training data that this head collected; None for policies that are not a single head."""


def report_card(policies: Sequence[PolicyReturns], likeness: Likeness, observations: str) -> dict[str, Any]:
    """The head report card as a JSON object.

    Args:
        policies: returns of the vote, the mean and the single heads.
        likeness: similarity of the heads.
        observations: a description of the observations that similarity was measured on.
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
