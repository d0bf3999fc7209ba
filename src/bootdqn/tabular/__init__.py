"""Tabular baselines, which see the state, and exact solutions of finite-horizon problems."""
