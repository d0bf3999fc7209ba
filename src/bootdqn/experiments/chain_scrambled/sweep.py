"""Every agent at every length of chain-scaling, scrambled."""

from __future__ import annotations

from bootdqn.experiments.chain_scaling.sweep import AGENT_NAMES, LENGTHS, chain_trial
from bootdqn.experiments.runner import Preset, Trial


def sweep(preset: Preset) -> list[Trial]:
    """All agents at all lengths."""
    return [
        chain_trial(preset, length, agent, options=",scrambled")
        for length in LENGTHS[preset]
        for agent in AGENT_NAMES
    ]
