"""Sensitivity of bootstrapped DQN to the number of heads K and to the mask probability p (paper, appendix C)."""
