"""Uncertainty of neural networks in regression: the bootstrap and dropout, in scikit-learn's manner."""

from bootdqn.regression.estimators import BootstrapRegressor, DropoutRegressor

__all__ = ["BootstrapRegressor", "DropoutRegressor"]
