"""The paper's three methods, what there is to choose in each, and the truth to compare with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bootdqn.experiments.regression.methods import Bootstrap, Dropout, GaussianProcess, Method, Truth
from bootdqn.experiments.runner import Preset, Trial


@dataclass(frozen=True, kw_only=True)
class RegressionConfig:
    """One method on several data sets."""

    method: Method
    num_seeds: int
    """Data sets, one a seed from 0."""
    curves: bool
    """Whether to keep the curves of the first one, for the figures."""


MAIN: dict[str, Method] = {
    "truth": Truth(),
    "gp": GaussianProcess(),
    "bootstrap": Bootstrap(),
    "dropout": Dropout(),
}
"""What the figures show."""
_VARIANTS: dict[str, Method] = {
    "bootstrap-poisson": Bootstrap(weights="poisson"),
    "bootstrap-exponential": Bootstrap(weights="exponential"),
    "bootstrap-ones": Bootstrap(weights="ones"),
    "bootstrap-trunk-1": Bootstrap(trunk_hidden=(50,), hidden=(50,)),
    "bootstrap-trunk-2": Bootstrap(trunk_hidden=(50, 50), hidden=()),
    "dropout-0.05": Dropout(rate=0.05),
    "dropout-0.2": Dropout(rate=0.2),
    "dropout-no-decay": Dropout(weight_decay=0.0),
}
_SEEDS: dict[Preset, int] = {"smoke": 2, "quick": 5, "paper": 20}


def sweep(preset: Preset) -> list[Trial]:
    """Every method; for a look, the main ones only, and shortly trained."""
    methods = MAIN if preset == "smoke" else MAIN | _VARIANTS
    return [
        Trial(
            name,
            RegressionConfig(
                method=_short(method) if preset == "smoke" else method,
                num_seeds=_SEEDS[preset],
                curves=name in MAIN,
            ),
        )
        for name, method in methods.items()
    ]


def _short(method: Method) -> Method:
    return replace(method, num_steps=50) if isinstance(method, Bootstrap | Dropout) else method
