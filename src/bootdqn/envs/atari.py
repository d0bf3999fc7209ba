"""The paper's 49 Atari games: `atari:breakout` by its protocol, `atari:breakout,modern` by today's."""

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

from bootdqn.envs.observations import Observations
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
"""Names of ROMs, and titles as in the paper's tables."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a game is shown, played and learned from."""

    action_repeat: int = 4
    """Frames an action is held."""
    max_pool: bool = True
    """Whether a picture is the maximum of the last two frames of a step: some sprites show in every other only."""
    height: int = 84
    """Of a picture, in pixels; frames are reduced by averaging areas."""
    width: int = 84
    """Of a picture, in pixels."""
    grey: bool = True
    """Whether pictures have brightness only."""
    stack: int = 4
    """Pictures in an observation, the oldest first; those before an episode are zero."""
    max_noops: int = 30
    """Most frames without an action at the start of an episode; any number from 0 is equally likely."""
    full_actions: bool = False
    """Whether all 18 actions can be taken, or only those that the game knows."""
    sticky_probability: float = 0.0
    """That the console holds the action of the frame before, drawn at every frame."""
    max_episode_frames: int = 108_000
    """After these, no-ops not counted, an episode is truncated."""
    life_loss_ends_future: bool = True
    """Whether training sees no future beyond a lost life; the episode goes on until the game is over."""

    def __post_init__(self) -> None:
        require(
            self.max_episode_frames % self.action_repeat == 0,
            f"max_episode_frames must be a multiple of action_repeat, {self.action_repeat}, "
            f"got {self.max_episode_frames}",
        )


PAPER = Protocol()
"""That of the paper, as of DQN before it."""
MODERN = Protocol(full_actions=True, sticky_probability=0.25)
"""With chance that cannot be learned by heart."""
_PROTOCOLS = {"modern": MODERN}


class AtariEnvs:
    """Slots of a game, with the interface of `HostEnvs`; observations are pictures [stack, height, width]."""

    def __init__(self, name: str, num_envs: int = 1, protocol: Protocol | None = None):
        """For a name such as `atari:breakout`; `protocol` in place of the one that it names."""
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
        """Start fresh episodes in all slots; what follows depends on `seeds` [S] and the actions alone."""
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
        """Let go of the games."""
        self.envs.close()


def is_atari(name: str) -> bool:
    """Whether a name is that of an Atari game."""
    return name.partition(",")[0].partition(":")[0] == "atari"


def protocol_of(name: str) -> Protocol:
    """The protocol that a name asks for."""
    return _parse(name)[1]


def protocol_card(name: str, *, clip_rewards: bool, evaluation_epsilon: float) -> dict[str, Any]:
    """All that decides what scores in a game mean, as JSON.

    Args:
        name: of the game.
        clip_rewards: whether training sees rewards within [-1, 1]; scores are never clipped.
        evaluation_epsilon: probability of a random action in evaluations.
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
    """A run's protocol card in one line, to go under a figure."""
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
    """ROM and protocol of a name."""
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
