"""The agent: pure functions of parameters, observations and random keys."""
