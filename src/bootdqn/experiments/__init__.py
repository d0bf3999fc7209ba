"""Experiments: a sweep (data), a run and a plot for every figure or table."""
