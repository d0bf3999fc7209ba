"""Figures of runs and experiments, drawn with matplotlib."""
