"""Efficient exploration of small problems whose state is seen: posterior sampling, optimism, dithering."""
