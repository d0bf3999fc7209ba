import hashlib
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import ale_py
import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from ale_py import AtariEnv, AtariVectorEnv, roms
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from numpy.typing import NDArray

from bootdqn.envs.atari import (
    GAMES,
    MODERN,
    PAPER,
    AtariEnvs,
    Protocol,
    is_atari,
    protocol_card,
    protocol_line,
    protocol_of,
)
from bootdqn.envs.spaces import Observations
from bootdqn.errors import UserError
from bootdqn.types import HostStep

TITLES = """
Alien, Amidar, Assault, Asterix, Asteroids, Atlantis, Bank Heist, Battle Zone, Beam Rider, Bowling, Boxing,
Breakout, Centipede, Chopper Command, Crazy Climber, Demon Attack, Double Dunk, Enduro, Fishing Derby, Freeway,
Frostbite, Gopher, Gravitar, Hero, Ice Hockey, Jamesbond, Kangaroo, Krull, Kung Fu Master, Montezuma Revenge, Ms
Pacman, Name This Game, Pong, Private Eye, Qbert, Riverraid, Road Runner, Robotank, Seaquest, Space Invaders,
Star Gunner, Tennis, Time Pilot, Tutankham, Up N Down, Venture, Video Pinball, Wizard Of Wor, Zaxxon
"""
ENDS = ("terminated", "truncated")


def area_taps(source: int, target: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Pixels that make up every reduced pixel, and how much of it each is: both [target, 4]."""
    scale = source / target
    index, weight = np.zeros((target, 4), int), np.zeros((target, 4), np.float32)
    for i in range(target):
        low, high = i * scale, (i + 1) * scale
        pixels = range(math.floor(low + 1e-3), math.ceil(high - 1e-3))
        for tap, j in enumerate(pixels):
            index[i, tap], weight[i, tap] = j, (min(high, j + 1) - max(low, j)) / scale
    return index, weight


def reduce_area(picture: NDArray[np.uint8], size: tuple[int, int], interpolation: str) -> NDArray[np.uint8]:
    """`cv2.resize` by areas: to the bit, as it adds in this order, in single precision."""
    assert (size, interpolation) == ((84, 84), "area")
    columns, rows = area_taps(160, 84), area_taps(210, 84)
    wide = sum(picture[:, columns[0][:, tap]] * columns[1][:, tap] for tap in range(4))
    assert isinstance(wide, np.ndarray)
    small = sum(wide[rows[0][:, tap]] * rows[1][:, tap, None] for tap in range(4))
    return np.rint(small).astype(np.uint8)


class Reference:
    """One game through Gymnasium's own wrappers, with `reduce_area` for OpenCV's function."""

    def __init__(self, game: str, protocol: Protocol, seed: int):
        env = AtariEnv(
            game,
            obs_type="grayscale",
            frameskip=1,
            repeat_action_probability=protocol.sticky_probability,
            full_action_space=protocol.full_actions,
        )
        env.ale.setInt("random_seed", seed)
        path = roms.get_rom_path(game)
        assert path is not None
        env.ale.loadROM(path)
        env.np_random = SimpleNamespace(integers=lambda low, high: self.noops)  # pyright: ignore
        self.envs = FrameStackObservation(AtariPreprocessing(env, noop_max=30), 4, padding_type="zero")

    def reset(self, noops: int) -> Any:
        self.noops = noops
        return self.envs.reset()[0]

    def step(self, action: int) -> Any:
        obs, reward, terminated, truncated, info = self.envs.step(action)
        return obs, reward, terminated, truncated, info["lives"]


def frames_played(envs: AtariEnvs) -> NDArray[np.int32]:
    """In the episode of every slot, no-ops included."""
    nothing = np.zeros(envs.num_envs, bool)
    return envs.envs.reset(options={"reset_mask": nothing})[1]["episode_frame_number"]


def play(
    envs: AtariEnvs, seeds: list[int], actions: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], list[HostStep]]:
    """First observations, and what every row of `actions` [T, S] leads to."""
    return envs.reset(seeds), [envs.step(row) for row in actions]


def random_actions(envs: AtariEnvs, steps: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(envs.num_actions, size=(steps, envs.num_envs))


def until_over(envs: AtariEnvs, actions: NDArray[np.int64]) -> list[HostStep]:
    """The steps of the first episode."""
    steps = []
    for row in actions:
        steps.append(envs.step(row))
        if (steps[-1].terminated | steps[-1].truncated).any():
            return steps
    raise AssertionError("the episode did not end")


@pytest.mark.parametrize("name", ["atari:breakout", "atari:seaquest", "atari:freeway", "atari:breakout,modern"])
def test_pictures_rewards_and_ends_are_those_of_gymnasium(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(resize=reduce_area, INTER_AREA="area"))
    game, seed = name.partition(",")[0].removeprefix("atari:"), 11
    envs, reference = AtariEnvs(name), Reference(game, protocol_of(name), seed)
    obs = envs.reset([seed])
    noops = [int(frames_played(envs)[0])]
    assert np.array_equal(obs[0], reference.reset(noops[0]))
    lives, total, over = 0, 0.0, False
    for action in random_actions(envs, 500)[:, 0]:
        step = envs.step(np.array([action]))
        assert step.reward.dtype == np.float32
        assert step.fresh[0] == over != step.valid[0]
        if over:
            noops.append(int(frames_played(envs)[0]))
            expected = reference.reset(noops[-1]), 0.0, False, False, 0
        else:
            expected = reference.step(action)
        assert np.array_equal(step.obs[0], expected[0])
        over = expected[2]
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == expected[1:4]
        assert step.life_lost[0] == (expected[4] < lives and not step.fresh[0])
        lives, total = expected[4], total + expected[1]
    assert (len(noops) > 1) == (game != "freeway")
    assert (total > 1) == (game != "freeway")  # raw: hits of Seaquest are worth 20


@pytest.mark.parametrize(("game", "lives"), [("breakout", 5), ("seaquest", 4)])
def test_life_loss_neither_ends_the_episode_nor_resets_the_game(game: str, lives: int):
    envs = AtariEnvs(f"atari:{game}")
    first = envs.reset([3])
    steps = until_over(envs, random_actions(envs, 1000))
    lost = [t for t, step in enumerate(steps) if step.life_lost[0]]
    assert len(lost) == lives
    assert lost[-1] == len(steps) - 1
    assert steps[-1].terminated[0]
    assert not any(step.terminated[0] or step.truncated[0] or step.fresh[0] for step in steps[:-1])
    assert all(step.valid[0] for step in steps)
    assert frames_played(envs)[0] > 4 * (len(steps) - 1)  # counted on from life to life
    after = envs.step(np.array([0]))
    assert (after.fresh[0], after.valid[0], after.life_lost[0], after.terminated[0]) == (True, False, False, False)
    assert np.array_equal(after.obs[0, :3], np.zeros((3, 84, 84)))
    if game == "breakout":  # bricks that are gone stay gone until the game is over
        bricks = [int(obs[0, -1, 23:37].sum()) for obs in (first, steps[lost[-2] + 1].obs, after.obs)]
        assert sum(step.reward[0] for step in steps[: lost[-2]]) > 0
        assert bricks[1] < bricks[0] == bricks[2]


def test_a_protocol_can_ignore_life_loss():
    envs = AtariEnvs("atari:breakout", protocol=replace(PAPER, life_loss_ends_future=False))
    envs.reset([3])
    assert not any(step.life_lost[0] for step in until_over(envs, random_actions(envs, 1000)))


@pytest.mark.integration
def test_freeway_has_no_lives_and_ends_by_its_own_clock():
    envs = AtariEnvs("atari:freeway")
    envs.reset([3])
    steps = until_over(envs, np.ones((3000, 1), int))  # up
    assert steps[-1].terminated[0]
    assert not steps[-1].truncated[0]
    assert not any(step.life_lost[0] for step in steps)
    assert len(steps) == pytest.approx(2048, abs=8)
    assert 15 < sum(step.reward[0] for step in steps) < 30


def test_the_cap_truncates_on_the_true_last_pictures():
    capped = AtariEnvs("atari:seaquest", 3, replace(PAPER, max_episode_frames=200))
    actions, seeds = random_actions(capped, 70), [1, 2, 3]
    first = capped.reset(seeds)
    assert len(set(frames_played(capped))) == 3  # the cap does not count no-ops
    steps = [capped.step(row) for row in actions]
    expected_first, expected = play(AtariEnvs("atari:seaquest", 3), seeds, actions)
    assert np.array_equal(first, expected_first)
    for step, other in zip(steps[:50], expected[:50], strict=True):
        assert np.array_equal(step.next_obs, other.next_obs)
        assert np.array_equal(step.reward, other.reward)
        assert step.valid.all()
        assert not step.terminated.any()
    assert [step.truncated.tolist() for step in steps[48:51]] == [[False] * 3, [True] * 3, [False] * 3]
    after = steps[50]
    assert after.fresh.all()
    assert not (after.valid | after.life_lost | after.reward.astype(bool)).any()
    assert not after.obs[:, :3].any()
    assert steps[51].valid.all()
    assert np.array_equal(steps[51].obs[:, 2], after.obs[:, 3])

    by_ale_py = AtariVectorEnv(
        "seaquest", 3, max_num_frames_per_episode=200, noop_max=31, reward_clipping=False, use_fire_reset=False
    )
    by_ale_py.reset(seed=np.array(seeds))
    ends = [by_ale_py.step(row) for row in actions[:50]][-1]
    assert ends[3].all()
    assert np.array_equal(ends[0][:, :3], steps[49].next_obs[:, :3])
    assert not np.array_equal(ends[0][:, 3], steps[49].next_obs[:, 3])  # why the cap is ours


def test_nothing_of_the_game_is_seen_after_a_truncation():
    envs = AtariEnvs("atari:breakout")
    actions = random_actions(envs, 1000)
    envs.reset([3])
    steps = until_over(envs, actions)
    rewarded = next(t for t, step in enumerate(steps) if step.reward[0])
    for end in (rewarded, len(steps) - 1):  # what comes next in the game is a reward, or its end
        capped = AtariEnvs("atari:breakout", protocol=replace(PAPER, max_episode_frames=4 * end))
        _, (*_, last) = play(capped, [3], actions[:end])
        assert last.truncated[0]
        capped._lives[:] = 9  # as if earned: fewer after the reset are no loss
        after = capped.step(actions[end])
        assert after.fresh[0]
        assert after.reward[0] == 0
        assert not (after.terminated | after.truncated | after.life_lost).any()


def test_one_slot_may_be_truncated_as_another_terminates():
    envs = AtariEnvs("atari:breakout")
    one = random_actions(envs, 1000)
    envs.reset([3])
    end = len(until_over(envs, one))
    envs = AtariEnvs("atari:breakout", 2, replace(PAPER, max_episode_frames=4 * end))
    actions = np.concatenate([one, np.zeros_like(one)], axis=1)[: end + 10]  # the other never serves
    _, steps = play(envs, [3, 4], actions)
    assert steps[end - 1].terminated.tolist() == [True, False]
    assert steps[end - 1].truncated.tolist() == [False, True]
    assert steps[end].fresh.all()
    assert not steps[end].obs[:, :3].any()
    noops = frames_played(envs)
    for slot, seed in enumerate([3, 4]):
        alone = AtariEnvs("atari:breakout", 1, envs.protocol)
        play(alone, [seed], actions[:, slot : slot + 1])
        assert frames_played(alone)[0] == noops[slot]


def test_a_reset_forgets_where_episodes_were():
    envs = AtariEnvs("atari:seaquest", protocol=replace(PAPER, max_episode_frames=40))
    actions = random_actions(envs, 10)
    play(envs, [1], actions[:7])
    runs = []
    for _ in range(2):  # after the middle of an episode, and after its end
        envs._lives[:] = 9
        runs.append(play(envs, [1], actions)[1])
    for step, other in zip(*runs, strict=True):
        assert step.valid[0]
        assert not step.life_lost[0]
        assert np.array_equal(step.obs, other.obs)
    assert all([bool(step.truncated[0]) for step in steps] == [False] * 9 + [True] for steps in runs)


@pytest.mark.integration
def test_what_follows_depends_on_seeds_and_actions_alone():
    protocol = replace(MODERN, max_episode_frames=760, full_actions=False)
    envs = AtariEnvs("atari:breakout", 3, protocol)
    seeds, actions = [5, 2**31 - 1, 0], random_actions(envs, 400)
    first, steps = play(envs, seeds, actions)
    first_again, steps_again = play(envs, seeds, actions)
    makers = [AtariEnvs("atari:breakout", 1, protocol) for _ in seeds]
    alone = [play(one, [seeds[slot]], actions[:, slot : slot + 1]) for slot, one in enumerate(makers)]
    assert np.array_equal(first, first_again)
    assert np.array_equal(first, np.concatenate([first_alone for first_alone, _ in alone]))
    for t, step in enumerate(steps):
        for field, value in step._asdict().items():
            parts = [getattr(steps_alone[t], field) for _, steps_alone in alone]
            assert np.array_equal(value, getattr(steps_again[t], field)), (t, field)
            assert np.array_equal(value, np.concatenate(parts)), (t, field)
    terminated, truncated = (np.sum([getattr(step, end) for step in steps], axis=0) for end in ENDS)
    assert (terminated + truncated).min() >= 2
    assert terminated.any()
    assert truncated.any()


def test_only_sticky_actions_bring_chance_without_noops():
    for sticky in (0.0, 0.25):
        envs = AtariEnvs("atari:seaquest", 3, Protocol(max_noops=0, sticky_probability=sticky))
        actions = np.repeat(random_actions(envs, 40)[:, :1], 3, axis=1)
        first, steps = play(envs, [1, 2, 3], actions)
        assert np.array_equal(first[0], first[1])
        assert np.array_equal(steps[-1].obs[0], steps[-1].obs[1]) == (sticky == 0)
        assert np.array_equal(steps[-1].obs[0], steps[-1].obs[2]) == (sticky == 0)
    assert (PAPER.sticky_probability, MODERN.sticky_probability) == (0, 0.25)


def test_any_number_of_noops_up_to_the_most_is_drawn():
    envs = AtariEnvs("atari:freeway", protocol=Protocol(max_noops=3))
    by_seed = []
    for seed in range(4):
        envs.reset([seed])
        by_seed.append(int(frames_played(envs)[0]))
    assert len(set(by_seed)) > 1
    drawn = []
    for _ in range(60):
        envs.envs.reset(options={"reset_mask": np.ones(1, bool)})
        drawn.append(int(frames_played(envs)[0]))
    assert set(drawn) == {0, 1, 2, 3}


def test_observations_start_with_zeros_and_move_by_one_picture_a_step():
    envs = AtariEnvs("atari:seaquest", 2)
    assert (envs.observations.shape, envs.observations.dtype) == ((4, 84, 84), np.uint8)
    obs, steps = play(envs, [1, 2], random_actions(envs, 30))
    assert (obs.shape, obs.dtype) == ((2, 4, 84, 84), np.uint8)
    assert not obs[:, :3].any()
    assert obs[:, 3].any(axis=(1, 2)).all()
    for step in steps:
        assert np.array_equal(step.next_obs[:, :3], obs[:, 1:])
        assert not np.array_equal(step.next_obs[:, 3], obs[:, 3])
        obs = step.obs


@pytest.mark.parametrize(("game", "num_actions"), [("breakout", 4), ("freeway", 3), ("seaquest", 18)])
def test_paper_has_the_actions_of_the_game_and_modern_all(game: str, num_actions: int):
    assert AtariEnvs(f"atari:{game}").num_actions == num_actions
    assert AtariEnvs(f"atari:{game},modern").num_actions == 18


@pytest.mark.integration
def test_every_game_of_the_paper_can_be_played():
    assert list(GAMES.values()) == " ".join(TITLES.split()).split(", ")

    def play_one(game: str) -> None:
        envs = AtariEnvs(f"atari:{game}")
        envs.reset([1])
        step = envs.step(np.array([envs.num_actions - 1]))
        assert (step.obs.shape, envs.first_action) == ((1, 4, 84, 84), 0)
        assert step.obs[0, 3].any(), game
        assert step.valid[0]
        envs.close()

    with ThreadPoolExecutor(2) as pool:  # a ROM takes a tenth of a second to load
        assert len(list(pool.map(play_one, GAMES))) == 49


def test_names():
    assert is_atari("atari:breakout,modern")
    assert is_atari("atari")  # whose error says what is missing
    assert not is_atari("chain:50")
    assert not is_atari("ALE/Breakout-v5")
    assert (protocol_of("atari:breakout"), protocol_of("atari:breakout,modern")) == (PAPER, MODERN)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("atari", "expected a game, as in atari:breakout, got 'atari'"),
        ("atari:", "expected a game"),
        ("atari:brekout", "unknown Atari game 'brekout'; did you mean breakout?"),
        ("atari:SpaceInvaders", "did you mean space_invaders?"),
        ("atari:pitfall", "unknown Atari game 'pitfall'"),  # of ale-py, but not of the paper
        ("atari:breakout,modrn", "unknown option of Atari games 'modrn'; did you mean modern?"),
        ("atari:breakout,", "known: modern"),
        ("atari:breakout,modern,modern", "unknown option of Atari games 'modern,modern'"),
    ],
)
def test_wrong_names(name: str, message: str):
    for use in (AtariEnvs, protocol_of, card_of):
        with pytest.raises(UserError) as error:
            use(name)
        assert message in str(error.value)


def test_other_mistakes(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match="num_envs must be at least 1, got 0"):
        AtariEnvs("atari:breakout", 0)
    with pytest.raises(UserError, match="multiple of action_repeat, 4, got 102"):
        Protocol(max_episode_frames=102)
    envs = AtariEnvs("atari:breakout")
    for seed in (-1, 2**31):  # of which ale-py makes chance, and an error
        with pytest.raises(UserError, match=r"seeds must be at least 0 and less than 2\^31"):
            envs.reset([seed])
    envs.reset([1])
    for action in (-1, 4):
        with pytest.raises(UserError, match="less than 4, got"):
            envs.step(np.array([action]))
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UserError, match=r"pip install 'bootdqn\[atari\]'"):
        AtariEnvs("atari:breakout")


def card_of(name: str) -> dict[str, Any]:
    return protocol_card(name, clip_rewards=True, evaluation_epsilon=0.05)


def test_protocol_card():
    path = roms.get_rom_path("space_invaders")
    assert path is not None
    card = card_of("atari:space_invaders,modern")
    assert json.loads(json.dumps(card)) == card
    assert (card["game"], card["title"]) == ("space_invaders", "Space Invaders")
    assert asdict(MODERN).items() <= card.items()
    assert card["full_actions"] is True
    assert card["rom_md5"] == "72ffbef6504b75e69ee1045af9075f66"
    assert card["rom_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert card["gymnasium"] == gymnasium.__version__
    assert card["ale_py"] == ale_py.__version__
    assert (card["clip_rewards"], card["evaluation_epsilon"]) == (True, 0.05)


def test_protocol_line():
    start = "repeat 4, max-pool 2, 84x84 grey, stack 4, up to 30 no-ops, "
    end = "at most 108,000 frames, life loss ends the future in training, rewards clipped in training, "
    end += "evaluated with epsilon 0.05; ale-py 7.6.5"  # that of the card, whatever is there now
    line, modern = (
        protocol_line({**card_of(name), "ale_py": "7.6.5"}) for name in ("atari:pong", "atari:pong,modern")
    )
    assert line == f"{start}minimal actions, no sticky actions, {end}"
    assert modern == f"{start}all 18 actions, sticky actions 0.25, {end}"
    assert "clipped" not in protocol_line({**card_of("atari:pong"), "clip_rewards": False})


def test_pictures_stay_pictures():
    observations = Observations({"pictures": [2, 3, 5]})
    batch = np.arange(120, dtype=np.uint8).reshape(4, 2, 3, 5)
    rows = observations.rows(batch)
    assert np.array_equal(rows, batch)
    assert not np.shares_memory(rows, batch)
    assert np.array_equal(observations.row(batch[1]), batch[1])
    assert (observations.is_batch(batch), observations.is_batch(batch[0])) == (True, False)
    with pytest.raises(UserError, match=r"expected an observation of shape \(2, 3, 5\)"):
        observations.is_batch(batch[0, 0])
    with pytest.raises(UserError, match="expected pictures of bytes, got float64"):
        observations.row(batch[0] / 255)
    assert (observations.encoding.kind, observations.encoding.size) == ("pictures", 30)
    encoded = observations.encoding(jnp.asarray(batch[0]))
    assert encoded.dtype == jnp.uint8
    assert np.array_equal(encoded, batch[0])
