"""Environments: compiled ones, those of Gymnasium, and Atari games."""
