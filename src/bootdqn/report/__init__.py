"""Runs and experiments as one page to look at and hand on: found, read, averaged, drawn, served."""
