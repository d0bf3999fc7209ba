"""Benchmarks, side by side with other packages; only the command line imports them."""
