"""Videos of how a run learned, and of what its heads believe while they play."""
