"""The experiments of the paper and beyond: one file each has the sweep (data), the run and the plot."""
