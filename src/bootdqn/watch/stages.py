"""Where games are played to be filmed: slots that begin alike, and a camera on each."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bootdqn.envs.atari import AtariEnvs, is_atari, protocol_of
from bootdqn.envs.host import make_one
from bootdqn.envs.observations import Observations, action_count, space_layout

_ATARI_FPS = 15.0
"""The console has 60 frames a second, of which an action takes four."""
_MAX_FPS = 30.0
_USUAL_FPS = 15.0
"""Of an environment that does not say."""
_ATARI_PICTURE = 210, 160


class Scene(NamedTuple):
    """What all slots see after a step, or at the start."""

    obs: NDArray[Any]
    """For the heads [N, ...]."""
    reward: NDArray[np.float32]
    """[N]; 0 in a slot whose episode was over before."""
    over: NDArray[np.bool_]
    """Whether the episode is over [N]; the slot then stays as it is."""
    pictures: list[NDArray[np.uint8]] | None
    """For people, N of [height, width, 3]; None where the environment draws none."""


class GymStage:
    """A Gymnasium environment, or one of our own, in several slots."""

    def __init__(self, name: str, num_slots: int):
        # Many environments draw with pygame, which otherwise greets people and looks for a screen.
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
        """Begin an episode in all slots, with the same seed."""
        self._obs = [env.reset(seed=seed)[0] for env in self._envs]
        self._over = np.zeros(len(self._envs), bool)
        self._pictures = [np.zeros((1, 1, 3), np.uint8)] * len(self._envs)
        return self._scene(np.zeros(len(self._envs), np.float32), np.ones(len(self._envs), bool))

    def step(self, actions: NDArray[np.integer]) -> Scene:
        """Take an action in every slot whose episode goes on."""
        reward, goes_on = np.zeros(len(self._envs), np.float32), ~self._over
        for slot in np.flatnonzero(goes_on):
            action = int(actions[slot]) + self._first_action
            self._obs[slot], reward[slot], terminated, truncated, _ = self._envs[slot].step(action)
            self._over[slot] = terminated or truncated
        return self._scene(reward, goes_on)

    def close(self) -> None:
        """Let go of the environments."""
        for env in self._envs:
            env.close()

    def _scene(self, reward: NDArray[np.float32], changed: NDArray[np.bool_]) -> Scene:
        """What there is to see, with new pictures of the slots that changed."""
        rows = np.stack([self.observations.row(obs) for obs in self._obs])
        if not self.no_picture:
            try:
                for slot in np.flatnonzero(changed):
                    self._pictures[slot] = np.array(self._envs[slot].render(), np.uint8)[..., :3]
            except Exception as error:  # whatever a stranger's environment raises, the heads can be watched
                self.no_picture = f"{type(error).__name__}: {error}".partition("\n")[0]
        return Scene(rows, reward, self._over.copy(), None if self.no_picture else [*self._pictures])


class AtariStage:
    """A game in several slots, played by its protocol; beside each runs another in colour, for people."""

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
        """Begin an episode in all slots, with the same seed."""
        seeds = [seed] * self.player.num_envs
        obs, self._pictures = self.player.reset(seeds), [*self.camera.reset(seeds)[:, -1]]
        self._over = np.zeros(len(seeds), bool)
        return Scene(obs, np.zeros(len(seeds), np.float32), self._over, [*self._pictures])

    def step(self, actions: NDArray[np.integer]) -> Scene:
        """Take an action in every slot, and the same before the camera."""
        played, seen = self.player.step(actions), self.camera.step(actions)
        assert (played.reward == seen.reward).all(), "the camera does not see what is played"
        goes_on = ~self._over
        for slot in np.flatnonzero(goes_on):
            self._pictures[slot] = seen.obs[slot, -1]
        self._over = self._over | played.terminated | played.truncated
        return Scene(played.obs, np.where(goes_on, played.reward, 0), self._over, [*self._pictures])

    def close(self) -> None:
        """Let go of the games."""
        self.player.close()
        self.camera.close()


Stage = GymStage | AtariStage
"""Slots of one environment; `fps` is at how many steps a second it looks right."""


def make_stage(name: str, num_slots: int) -> Stage:
    """The stage for an environment of this name."""
    return AtariStage(name, num_slots) if is_atari(name) else GymStage(name, num_slots)
