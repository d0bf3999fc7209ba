"""The paper's 49 Atari games: `atari:breakout` by the paper's protocol, `atari:breakout,modern` by today's."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from bootdqn.envs.spaces import Observations
from bootdqn.errors import UserError, require, require_known
from bootdqn.types import HostStep

_ROMS = """
    alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider bowling boxing
    breakout centipede chopper_command crazy_climber demon_attack double_dunk enduro fishing_derby freeway
    frostbite gopher gravitar hero ice_hockey jamesbond kangaroo krull kung_fu_master montezuma_revenge
    ms_pacman name_this_game pong private_eye qbert riverraid road_runner robotank seaquest space_invaders
    star_gunner tennis time_pilot tutankham up_n_down venture video_pinball wizard_of_wor zaxxon
"""
GAMES: dict[str, str] = {rom: rom.replace("_", " ").title() for rom in _ROMS.split()}
"""Titles as in the paper's tables, by the names of ROMs."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a game is shown, played and learned from."""

    action_repeat: int = 4
    """The number of frames for which an action is held."""
    max_pool: bool = True
    """Whether a picture is the maximum of the last two frames, as some sprites show in every other frame only."""
    height: int = 84
    """The height of a picture in pixels; frames are reduced by averaging areas."""
    width: int = 84
    """The width of a picture in pixels."""
    grey: bool = True
    """Whether pictures are grey and not coloured."""
    stack: int = 4
    """The number of pictures in an observation, oldest first; those before an episode are zero."""
    max_noops: int = 30
    """The largest number of frames without action at the start of an episode; all from 0 are equally likely."""
    full_actions: bool = False
    """Whether there are all 18 actions, or only those that the game uses."""
    sticky_probability: float = 0.0
    """The probability, drawn at every frame, that the console repeats the action of the frame before."""
    max_episode_frames: int = 108_000
    """The number of frames, without initial no-ops, after which an episode is truncated."""
    life_loss_ends_future: bool = True
    """Whether a lost life ends the future in training; the episode itself lasts until the game is over."""

    def __post_init__(self) -> None:
        require(
            self.max_episode_frames % self.action_repeat == 0,
            f"max_episode_frames must be a multiple of action_repeat, {self.action_repeat}, "
            f"got {self.max_episode_frames}",
        )


PAPER = Protocol()
"""The protocol of the paper, which is that of DQN."""
MODERN = Protocol(full_actions=True, sticky_probability=0.25)
"""Today's protocol, with randomness that prevents memorised sequences of actions."""
_PROTOCOLS = {"modern": MODERN}


class AtariEnvs:
    """The slots of a game, with the interface of `HostEnvs`; observations are pictures [stack, height, width]."""

    def __init__(self, name: str, num_envs: int = 1, protocol: Protocol | None = None):
        """Make the slots.

        Args:
            name: the name of the game, such as `atari:breakout`.
            num_envs: the number of slots.
            protocol: the protocol, if not the one that the name asks for.
        """
        game, named = _parse(name)
        require(num_envs >= 1, f"num_envs must be at least 1, got {num_envs}")
        self.protocol = protocol or named
        self.num_envs = num_envs
        self.first_action = 0
        self.envs = _ale_py().AtariVectorEnv(
            game,
            num_envs,
            batch_size=num_envs,
            num_threads=min(num_envs, os.cpu_count() or 1),
            thread_affinity_offset=-1,
            # Never reached, see `step`.
            max_num_frames_per_episode=self.protocol.max_episode_frames + 2 * self.protocol.action_repeat,
            repeat_action_probability=self.protocol.sticky_probability,
            full_action_space=self.protocol.full_actions,
            continuous=False,
            continuous_action_threshold=0.5,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            img_height=self.protocol.height,
            img_width=self.protocol.width,
            grayscale=self.protocol.grey,
            stack_num=self.protocol.stack,
            frameskip=self.protocol.action_repeat,
            maxpool=self.protocol.max_pool,
            noop_max=self.protocol.max_noops + 1,  # ale-py draws fewer than that
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.observations = Observations({"pictures": list(self.envs.single_observation_space.shape)})
        self.num_actions = int(self.envs.single_action_space.n)

    def reset(self, seeds: Sequence[int]) -> NDArray[np.uint8]:
        """Start new episodes in all slots; all that follows depends on `seeds` [S] and the actions alone."""
        require(
            all(0 <= seed < 2**31 for seed in seeds), f"seeds must be at least 0 and less than 2^31, got {seeds}"
        )
        obs, info = self.envs.reset(seed=np.array(seeds, np.int64))
        self._lives = np.array(info["lives"])
        self._frames = np.zeros(self.num_envs, int)
        self._over = np.zeros(self.num_envs, bool)
        self._truncated = np.zeros(self.num_envs, bool)
        return self.observations.rows(obs)

    def step(self, actions: NDArray[np.integer]) -> HostStep:
        """Take an action in every slot."""
        if not ((actions >= 0) & (actions < self.num_actions)).all():  # ale-py would wait forever
            raise UserError(f"actions must be at least 0 and less than {self.num_actions}, got {actions}")
        batch, reward, terminated, _, info = self.envs.step(actions.astype(np.int64))
        if self._truncated.any():
            # An episode that ale-py truncates itself ends on a blend of two pictures. So we truncate, ale-py steps
            # once more, and that step gives way to the reset.
            batch, info = self.envs.reset(options={"reset_mask": self._truncated})
        was_reset, valid = self._over, ~self._over
        self._frames = np.where(valid, self._frames + self.protocol.action_repeat, 0)
        terminated = valid & terminated
        self._truncated = ~terminated & (self._frames >= self.protocol.max_episode_frames)
        self._over = terminated | self._truncated
        life_lost = valid & (info["lives"] < self._lives) & self.protocol.life_loss_ends_future
        self._lives = np.array(info["lives"])
        obs = self.observations.rows(batch)
        reward = np.where(valid, reward, 0).astype(np.float32)
        return HostStep(obs, reward, terminated, self._truncated, valid, obs, was_reset, life_lost)

    def close(self) -> None:
        """Close the games."""
        self.envs.close()


def is_atari(name: str) -> bool:
    """Return whether a name is that of an Atari game."""
    return name.partition(",")[0].partition(":")[0] == "atari"


def protocol_of(name: str) -> Protocol:
    """Return the protocol that a name asks for."""
    return _parse(name)[1]


def protocol_card(name: str, *, clip_rewards: bool, evaluation_epsilon: float) -> dict[str, Any]:
    """Return everything that scores in a game depend on, as JSON.

    Args:
        name: the name of the game.
        clip_rewards: whether rewards are clipped to [-1, 1] in training; scores never are.
        evaluation_epsilon: the probability of a random action in evaluations.
    """
    game, protocol = _parse(name)
    ale_py = _ale_py()
    rom = ale_py.roms.get_rom_path(game).read_bytes()
    return {
        "game": game,
        "title": GAMES[game],
        **dataclasses.asdict(protocol),
        "clip_rewards": clip_rewards,
        "evaluation_epsilon": evaluation_epsilon,
        "ale_py": ale_py.__version__,
        "gymnasium": gymnasium.__version__,
        "rom_md5": hashlib.md5(rom).hexdigest(),
        "rom_sha256": hashlib.sha256(rom).hexdigest(),
    }


def protocol_line(card: Mapping[str, Any]) -> str:
    """Format the protocol card of a run as one line, for the footer of a figure."""
    sticky, epsilon = card["sticky_probability"], card["evaluation_epsilon"]
    parts = [
        f"repeat {card['action_repeat']}",
        "max-pool 2" if card["max_pool"] else "no max-pool",
        f"{card['height']}x{card['width']} {'grey' if card['grey'] else 'colour'}",
        f"stack {card['stack']}",
        f"up to {card['max_noops']} no-ops",
        "all 18 actions" if card["full_actions"] else "minimal actions",
        f"sticky actions {sticky:g}" if sticky else "no sticky actions",
        f"at most {card['max_episode_frames']:,} frames",
        *["life loss ends the future in training"] * card["life_loss_ends_future"],
        *["rewards clipped in training"] * card["clip_rewards"],
        f"evaluated with epsilon {epsilon:g}",
    ]
    return f"{', '.join(parts)}; ale-py {card['ale_py']}"


def _parse(name: str) -> tuple[str, Protocol]:
    """Return the ROM and the protocol of a name."""
    head, has_option, option = name.partition(",")
    family, _, game = head.partition(":")
    require(family == "atari" and game != "", f"expected a game, as in atari:breakout, got {name!r}")
    require_known("Atari game", game, GAMES)
    if not has_option:
        return game, PAPER
    require_known("option of Atari games", option, _PROTOCOLS)
    return game, _PROTOCOLS[option]


def _ale_py() -> Any:
    try:
        import ale_py
    except ImportError:
        raise UserError("Atari games need ale-py; install it by pip install 'bootdqn[atari]'") from None
    return ale_py
