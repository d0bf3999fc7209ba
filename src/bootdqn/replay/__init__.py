"""Replay: memories of transitions to learn from."""
