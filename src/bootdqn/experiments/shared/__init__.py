"""Measurements, tables and the paper's own numbers that several experiments share."""
