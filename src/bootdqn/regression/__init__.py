"""Regression with uncertainty by bootstrapped networks and by dropout, as scikit-learn estimators."""

from bootdqn.regression.estimators import BootstrapRegressor, DropoutRegressor

__all__ = ["BootstrapRegressor", "DropoutRegressor"]
