"""Environments to be filmed: several slots that start from the same state, with a picture of each."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.envs.atari import AtariEnvs, is_atari, protocol_of
from bootdqn.envs.spaces import Observations, action_count, space_layout
from bootdqn.envs.vector import make_one

_ATARI_FPS = 15.0
"""The console has 60 frames per second, and an action lasts four."""
_MAX_FPS = 30.0
_USUAL_FPS = 15.0
"""The frame rate of an environment that does not name one."""
_ATARI_PICTURE = 210, 160
"""Height and width of a frame of the console in pixels."""


class Scene(NamedTuple):
    """The state of all N slots after a step, or after a reset."""

    obs: NDArray[Any]
    """Observations for the heads [N, ...]."""
    reward: NDArray[np.float32]
    """Rewards of the step [N]; 0 in a slot whose episode was over before."""
    over: NDArray[np.bool_]
    """Whether the episode is over [N]; the slot does not change from then on."""
    pictures: list[NDArray[np.uint8]] | None
    """Pictures for people, N arrays [height, width, 3]; None if the environment cannot be rendered."""


class GymStage:
    """Several slots of a Gymnasium environment, or of a compiled one."""

    def __init__(self, name: str, num_slots: int):
        # Many environments render with pygame, which otherwise prints a greeting and needs a screen.
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        env: Any = make_one(name)
        renders = "rgb_array" in (env.metadata.get("render_modes") or ())
        self.observations = Observations(space_layout(env.observation_space))
        self.num_actions, self._first_action = action_count(env.action_space)
        meanings = getattr(env.unwrapped, "get_action_meanings", None)
        self.action_names = list(meanings()) if meanings else [f"action {i}" for i in range(self.num_actions)]
        self.fps = min(float(env.metadata.get("render_fps") or _USUAL_FPS), _MAX_FPS)
        self.no_picture = "" if renders else "this environment draws no pictures"
        env.close()
        self._envs: list[Any] = [make_one(name, "rgb_array" if renders else None) for _ in range(num_slots)]

    def reset(self, seed: int) -> Scene:
        """Start an episode in all slots with the same seed."""
        self._obs = [env.reset(seed=seed)[0] for env in self._envs]
        self._over = np.zeros(len(self._envs), bool)
        self._pictures = [np.zeros((1, 1, 3), np.uint8)] * len(self._envs)
        return self._scene(np.zeros(len(self._envs), np.float32), np.ones(len(self._envs), bool))

    def step(self, actions: NDArray[np.integer]) -> Scene:
        """Take an action in every slot whose episode is not over."""
        reward, goes_on = np.zeros(len(self._envs), np.float32), ~self._over
        for slot in np.flatnonzero(goes_on):
            action = int(actions[slot]) + self._first_action
            self._obs[slot], reward[slot], terminated, truncated, _ = self._envs[slot].step(action)
            self._over[slot] = terminated or truncated
        return self._scene(reward, goes_on)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()

    def _scene(self, reward: NDArray[np.float32], changed: NDArray[np.bool_]) -> Scene:
        """The current scene, with new pictures of the slots that changed."""
        rows = np.stack([self.observations.row(obs) for obs in self._obs])
        if not self.no_picture:
            try:
                for slot in np.flatnonzero(changed):
                    self._pictures[slot] = np.array(self._envs[slot].render(), np.uint8)[..., :3]
            except Exception as error:  # whatever a foreign environment raises, the heads can still be watched
                self.no_picture = f"{type(error).__name__}: {error}".partition("\n")[0]
        return Scene(rows, reward, self._over.copy(), None if self.no_picture else [*self._pictures])


class AtariStage:
    """Several slots of an Atari game; every slot has a twin that renders in colour for people."""

    no_picture = ""

    def __init__(self, name: str, num_slots: int):
        height, width = _ATARI_PICTURE
        as_seen = dataclasses.replace(protocol_of(name), grey=False, height=height, width=width, stack=1)
        self.player = AtariEnvs(name, num_slots)
        self.camera = AtariEnvs(name, num_slots, as_seen)
        self.observations, self.num_actions = self.player.observations, self.player.num_actions
        self.action_names = [action.name.lower() for action in self.player.envs.ale.get_action_set()]
        self.fps = _ATARI_FPS

    def reset(self, seed: int) -> Scene:
        """Start an episode in all slots with the same seed."""
        seeds = [seed] * self.player.num_envs
        obs, self._pictures = self.player.reset(seeds), [*self.camera.reset(seeds)[:, -1]]
        self._over = np.zeros(len(seeds), bool)
        return Scene(obs, np.zeros(len(seeds), np.float32), self._over, [*self._pictures])

    def step(self, actions: NDArray[np.integer]) -> Scene:
        """Take an action in every slot and in its twin."""
        played, seen = self.player.step(actions), self.camera.step(actions)
        assert (played.reward == seen.reward).all(), "the camera does not see what is played"
        goes_on = ~self._over
        for slot in np.flatnonzero(goes_on):
            self._pictures[slot] = seen.obs[slot, -1]
        self._over = self._over | played.terminated | played.truncated
        return Scene(played.obs, np.where(goes_on, played.reward, 0), self._over, [*self._pictures])

    def close(self) -> None:
        """Close the games."""
        self.player.close()
        self.camera.close()


Stage = GymStage | AtariStage
"""Several slots of one environment; `fps` is the frame rate at which a video of it looks natural."""


def make_stage(name: str, num_slots: int) -> Stage:
    """Make the stage for an environment by its name."""
    return AtariStage(name, num_slots) if is_atari(name) else GymStage(name, num_slots)
