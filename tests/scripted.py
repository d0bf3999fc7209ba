"""An environment that plays from a script, so that everything it returns can be written down."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

LENGTHS = (3, 1, 4, 1, 1, 2, 5)
FIRST_ACTION = 2
ARRAY = spaces.Box(0, 1000, (3,), np.float32)
FORMS = {
    "array": ARRAY,
    "dict": spaces.Dict({"at": ARRAY, "odd": spaces.Discrete(2, start=5)}),
    "index": spaces.Discrete(10_000, start=-7),
}
MODES = list(AutoresetMode)


class Scripted(gymnasium.Env[Any, Any]):
    """Observes (script, episode, step); the seed chooses the script, which says how long every episode is."""

    def __init__(self, form: str = "array"):
        self.form = form
        self.observation_space = FORMS[form]
        self.action_space = spaces.Discrete(3, start=FIRST_ACTION)
        self.script, self.episode, self.left = 0, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is None:
            self.episode += 1
        else:
            self.script, self.episode = seed % len(LENGTHS), 0
        self.at, self.left = 0, script_length(self.script, self.episode)
        return self.observe(), {}

    def step(self, action: Any):
        assert self.left, "a step after the end of an episode"
        assert self.action_space.contains(action)
        self.at, self.left = self.at + 1, self.left - 1
        over = self.left == 0
        terminated, truncated = over and self.episode % 3 != 1, over and self.episode % 3 != 0
        return self.observe(), 100.0 * self.episode + self.at + action / 8, terminated, truncated, {}

    def observe(self) -> Any:
        if self.form == "index":
            return (self.script * 100 + self.episode) * 10 + self.at - 7
        at = np.array([self.script, self.episode, self.at], np.float32)
        return at if self.form == "array" else {"at": at, "odd": 5 + self.at % 2}


def script_length(script: int, episode: int) -> int:
    return LENGTHS[(script + episode) % len(LENGTHS)]
