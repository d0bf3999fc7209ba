"""Videos of what the heads think: while they learn, and while they play."""
