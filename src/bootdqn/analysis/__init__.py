"""Statistics of runs: scores, agreement of the heads, and how states were explored."""
