"""Four agents that differ in how many steps they look ahead, for reward and for information."""

from __future__ import annotations

from dataclasses import dataclass

from bootdqn.experiments.runner import Preset, Trial

HORIZON = 3


@dataclass(frozen=True, kw_only=True)
class Planner:
    """An agent that knows a deterministic chain s_-n ... s_n: s_-n pays, and what s_n pays is not known."""

    reward_steps: int
    """How many steps ahead it weighs rewards."""
    information_steps: int
    """How many steps ahead it weighs what it could learn."""
    last_state: int = 3
    """n."""
    horizon: int = HORIZON
    """Steps from s_0."""


PLANNERS: dict[str, Planner] = {
    "bandit": Planner(reward_steps=1, information_steps=1),
    "dithering": Planner(reward_steps=HORIZON, information_steps=0),
    "shallow": Planner(reward_steps=HORIZON, information_steps=1),
    "deep": Planner(reward_steps=HORIZON, information_steps=HORIZON),
}
"""A bandit weighs what an action brings at once. An RL agent weighs rewards to the end; of information, dithering
weighs none, shallow exploration what the next step brings, and deep exploration all."""


def sweep(preset: Preset) -> list[Trial]:
    """The same for every preset."""
    return [Trial(name, planner) for name, planner in PLANNERS.items()]
