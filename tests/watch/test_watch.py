"""Videos: that they hold what they claim to show, on real runs."""

import csv
import dataclasses
import importlib
import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

import bootdqn
from bootdqn import BootstrappedDQN
from bootdqn.cli.watch import main
from bootdqn.core.config import AGENTS
from bootdqn.envs.atari import AtariEnvs, protocol_of
from bootdqn.envs.registry import make_env
from bootdqn.errors import UserError
from bootdqn.loops.rollout import VOTE
from bootdqn.plots.style import AGENT_COLOURS, head_colour
from bootdqn.runs.config import RunConfig, parse_config
from bootdqn.runs.directory import read_json, write_json
from bootdqn.tabular.agents import TABULAR_AGENTS
from bootdqn.types import Belief
from bootdqn.watch import learning, video
from bootdqn.watch.canvas import ACCENT, SIZE, WHITE, Axes, cell_box, grid, rgb
from bootdqn.watch.learning_scenes import GridMap, LearningScene, RowMap, draw_learning
from bootdqn.watch.models import find_snapshots
from bootdqn.watch.playing import make_performers
from bootdqn.watch.playing_scenes import HeadsScene, VoteScene
from bootdqn.watch.stages import AtariStage, GymStage, Scene, make_stage

TINY = {"num_heads": 3, "hidden": (8,), "batch_size": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A small run of every kind."""
    out = tmp_path_factory.mktemp("runs")
    bootdqn.train("chain:6", episodes=15, num_seeds=2, out=out / "chain", num_heads=3, hidden=(8,))
    cartpole = BootstrappedDQN("CartPole-v1", **TINY, learning_start_steps=120)
    cartpole.learn(150, out=out / "cartpole", evaluate_every_steps=0, checkpoint_every_steps=100)
    for name, env in (("pong", "atari:pong"), ("host", "chain:6")):  # as a run leaves them, without its training
        model = BootstrappedDQN(env, **TINY)
        model.save(out / name / "models" / "last.safetensors")
        write_json(out / name / "config.json", dataclasses.asdict(model.config))
        model.close()
    return out


@pytest.fixture(scope="module")
def chain(runs) -> learning.Recording:
    """All of the second seed on the chain."""
    config = parse_config(read_json(runs / "chain" / "config.json"), runs)
    return learning.repeat_training(config, 1, 15)


@pytest.fixture(scope="module")
def sea() -> learning.Recording:
    """A training in a small sea."""
    agent = dataclasses.replace(AGENTS["boot"], num_heads=3, hidden=(8,))
    return learning.repeat_training(RunConfig(loop="compiled", env="deep_sea:4", agent=agent, episodes=15), 0, 15)


def frames_of(path: Path) -> list[np.ndarray]:
    """All frames of an MP4, as ffmpeg decodes it."""
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(ffmpeg, capture_output=True, check=True)
    assert re.search(rb"Video: h264 .* yuv420p\(tv, bt709.*, 1280x720", done.stderr)
    return [*np.frombuffer(done.stdout, np.uint8).reshape(-1, SIZE[1], SIZE[0], 3)]


def pixel(image: Image.Image, box) -> tuple[int, ...]:
    """In the middle of a box."""
    found = image.getpixel(((box[0] + box[2]) // 2, (box[1] + box[3]) // 2))
    assert isinstance(found, tuple)
    return found


def metrics_of(run: Path, seed: int) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["seed"] == str(seed)]


# The file.


def moving(count: int):
    """A blue square on its way to the right; then it stands."""
    for index in range(count):
        image = Image.new("RGB", SIZE, WHITE)
        image.paste(ACCENT, (100 * min(index, 5), 300, 100 * min(index, 5) + 64, 364))
        yield image


def test_mp4_plays_from_the_front(tmp_path):
    found = video.write_video(tmp_path / "new" / "a.mp4", moving(8), 4)
    assert (found.frames, found.seconds, found.size) == (8, 2.0, found.path.stat().st_size)
    frames = frames_of(found.path)
    assert len(frames) == 8
    for index, frame in enumerate(frames):
        np.testing.assert_allclose(frame[332, 100 * min(index, 5) + 32], rgb(ACCENT), atol=4)
    data = found.path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_gif_merges_what_does_not_move(tmp_path):
    found = video.write_video(tmp_path / "a.gif", moving(9), 7)
    assert (found.frames, found.seconds) == (9, pytest.approx(9 / 7))
    with Image.open(found.path) as gif:
        assert (gif.size, getattr(gif, "n_frames", 0), gif.info["loop"]) == (SIZE, 6, 0)
        lasts = []
        for index in range(6):
            gif.seek(index)
            lasts.append(gif.info["duration"])
            assert pixel(gif.convert("RGB"), (100 * index, 300, 100 * index + 64, 364)) == tuple(rgb(ACCENT))
    assert sum(lasts) == 1290  # of 1285.7 ms
    assert lasts[:5] == [140, 150, 140, 140, 140]


@pytest.mark.parametrize("suffix", video.SUFFIXES)
def test_nothing_half_written_is_left(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"before")

    def failing():
        yield from moving(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        video.write_video(path, failing(), 4)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"before"
    video.write_video(path, moving(3), 4)
    assert path.read_bytes() != b"before"


def test_what_ffmpeg_cannot_write_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "_FOR_BROWSERS", ("-codec:v", "no_such_codec"))
    with pytest.raises(OSError, match=r"ffmpeg could not write the video; it said: .*Encoder not found"):
        video.write_video(tmp_path / "a.mp4", moving(30), 4)
    assert not list(tmp_path.iterdir())


# Drawing.


def test_cells_are_where_they_are_said_to_be():
    box = 10, 20, 110, 90
    cells = [cell_box(box, (3, 7), row, column) for row in range(3) for column in range(7)]
    assert cells[0][:2] == box[:2]
    assert cells[-1][2:] == box[2:]
    covered = np.zeros((100, 120), int)
    for left, top, right, bottom in cells:
        covered[top:bottom, left:right] += 1
    assert (covered[20:90, 10:110] == 1).all()
    assert covered.sum() == 70 * 100


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (3, 3), (10, 5), (20, 7)])
def test_tiles_are_as_large_as_possible(count, columns):
    tiles = grid(count, (0, 0, 1000, 400), 1.0, 20)
    assert len(tiles) == len(set(tiles)) == count
    assert len({tile[0] for tile in tiles}) == columns


def test_axes():
    axes = Axes((0, 0, 101, 51), (0, 10), (0, 1))
    assert [axes.place(*at) for at in ((0, 0), (10, 1), (5, 0.5))] == [(0, 50), (100, 0), (50, 25)]
    assert axes.place(99, -1) == (100, 50)


# Learning.


@pytest.mark.parametrize(
    "env", ["chain:7", "chain:9,scrambled", "deep_sea:5", "stochastic_chain,scrambled", "river_swim"]
)
def test_right_is_the_best_action_on_the_way(env):
    """What videos call right is what the exact problem calls optimal, from the start to the reward."""
    made: Any = make_env(env)
    right, way, mdp = np.asarray(made.right_actions).ravel(), made.way_to_reward, made.mdp
    assert way[0] == mdp.start
    for steps, state in enumerate(way):  # an agent cannot be there earlier
        assert mdp.gaps[steps, state, right[state]] == 0


@pytest.mark.integration
def test_a_repeated_training_is_the_same(runs, chain):
    run, seed, recording = runs / "chain", 1, chain
    rows = metrics_of(run, seed)
    assert recording.returns.tolist() == [np.float32(row["return"]) for row in rows]
    assert recording.heads.tolist() == [int(row["head"]) for row in rows]
    assert learning.compare(run, recording) == (15, None)
    assert recording.ends.tolist() == list(range(16))
    # The heads after the last episode are the model that the run left.
    model = BootstrappedDQN.load(run / "models" / f"seed{seed}.safetensors")
    for state in range(6):
        _, belief = model.predict(state)
        assert (np.asarray(belief.q).argmax(axis=1) == 1).tolist() == recording.goes_right[-1, :, state].tolist()
        np.testing.assert_allclose(np.asarray(belief.q).max(axis=1), recording.values[-1, :, state], rtol=1e-5)
    # Every episode starts at s_2 and acts in a row of neighbours.
    assert recording.visited[:, 1].all()
    for states in recording.visited:
        assert (np.diff(np.flatnonzero(states)) == 1).all()
    other = recording._replace(returns=np.where(np.arange(15) == 6, 7, recording.returns))
    assert learning.compare(run, other) == (15, 7)
    other = recording._replace(spreads=np.where(np.arange(15) == 9, 7, recording.spreads))
    assert learning.compare(run, other) == (15, 10)


@pytest.mark.integration
def test_the_raster_has_the_colour_of_who_acted(runs, chain):
    recording, lesson = chain, LearningScene(chain)
    assert isinstance(lesson.world, RowMap)
    heads = [int(row["head"]) for row in metrics_of(runs / "chain", 1)]
    assert len(set(heads)) > 1
    picture = lesson.draw(9)
    for episode, head in enumerate(heads[:9]):
        for state in range(6):
            found = pixel(picture, cell_box(lesson.world.places, (15, 6), episode, state))
            expected = head_colour(head) if recording.visited[episode, state] else WHITE
            assert found == tuple(rgb(expected))
    not_yet = pixel(picture, cell_box(lesson.world.places, (15, 6), 12, 1))
    assert not_yet not in {tuple(rgb(WHITE)), *(tuple(rgb(head_colour(head))) for head in heads)}
    # Heads that would go right are blue, others orange.
    for head in range(3):
        for state in range(6):
            left, top, right, bottom = cell_box(lesson.world.strip, (3, 6), head, state)
            red, _, blue = pixel(picture, (left, top, right, bottom))
            assert (blue > red) == recording.goes_right[9, head, state]


@pytest.mark.integration
def test_a_row_may_be_several_episodes(chain, monkeypatch):
    assert learning.frame_ends(15).tolist() == list(range(16))
    assert learning.frame_ends(301).tolist() == [*range(0, 301, 2), 301]
    monkeypatch.setattr(learning, "MAX_FRAMES", 6)
    recording = chain._replace(ends=learning.frame_ends(15))
    assert recording.ends.tolist() == [0, 3, 6, 9, 12, 15]
    assert [list(recording.episodes(frame)) for frame in (0, 1, 5)] == [[], [0, 1, 2], [12, 13, 14]]
    world = RowMap(recording)
    assert len(world.rows) == 5
    for state in np.flatnonzero(recording.visited[3:6].any(axis=0)):
        last = 3 + int(np.flatnonzero(recording.visited[3:6, state])[-1])
        assert world.rows[1, state].tolist() == rgb(recording.colour(last)).tolist()


def test_the_sea_has_the_colour_of_who_came_first(sea):
    recording, lesson = sea, LearningScene(sea)
    assert isinstance(lesson.world, GridMap)
    assert (recording.visited.sum(axis=1) == 4).all()  # a cell in every row
    last = lesson.draw(15)
    for state in range(16):
        left, top, _, bottom = cell_box(lesson.world.places, (4, 4), *divmod(state, 4))
        beside_the_line = left + 6, top, left + 8, bottom
        first = np.flatnonzero(recording.visited[:, state])
        if len(first):
            assert pixel(last, beside_the_line) == tuple(rgb(head_colour(int(recording.heads[first[0]]))))
    # The way that is drawn for a head is the way on which it would go.
    goes_right = recording.goes_right[15, 0].reshape(4, 4)
    way = lesson.world._path_of(15, 0)
    assert way[0] == (0, 0)
    for (row, column), (below, beside) in itertools.pairwise(way):
        assert (below, beside) == (row + 1, column + 1 if goes_right[row, column] else max(column - 1, 0))
    way_right = recording._replace(goes_right=np.ones_like(recording.goes_right))
    assert GridMap(way_right)._path_of(0, 0) == [(n, n) for n in range(4)]
    assert way_right.complete(0).all()


@pytest.mark.integration
def test_the_first_to_reach_the_reward(chain):
    recording = chain
    visited = recording.visited.copy()
    visited[:, -1] = False
    assert recording._replace(visited=visited).found is None
    assert recording._replace(visited=visited).found_frame is None
    visited[[4, 8], -1] = True
    found = recording._replace(visited=visited, ends=np.array([0, 2, 4, 6, 15]))
    assert (found.found, found.found_frame) == (4, 3)
    assert [frame for frame in range(5) if 4 in found.episodes(frame)] == [3]


@pytest.mark.integration
def test_a_video_of_learning(runs, chain, capsys):
    assert main([str(runs / "chain"), "--fps", "5", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert "repeated 15 episodes of seed 1; the 15 that the run recorded are the same" in out
    frames = frames_of(runs / "chain" / "watch.mp4")
    assert len(frames) == num_frames(chain, 5)
    assert f"watch.mp4: {len(frames)} frames, {len(frames) / 5:.1f} s" in out
    assert np.abs(frames[-1].astype(int) - np.asarray(LearningScene(chain).draw(15))).mean() < 1.5


def test_a_video_of_the_sea(sea, tmp_path):
    video.write_video(tmp_path / "sea.mp4", draw_learning(sea, 5), 5)
    frames = frames_of(tmp_path / "sea.mp4")
    assert len(frames) == num_frames(sea, 5)
    for index, exact in ((0, 0), (10, 0), (11, 1), (-1, 15)):  # two seconds of the first
        assert np.abs(frames[index].astype(int) - np.asarray(LearningScene(sea).draw(exact))).mean() < 1.5


def num_frames(recording: learning.Recording, fps: int) -> int:
    """With pauses of two seconds."""
    return 16 + 2 * fps * len({0, recording.found_frame, 15} - {None})


@pytest.mark.integration
@pytest.mark.parametrize("agent", ["dqn", "thompson", "ensemble"])
def test_agents_without_a_committed_head_have_one_colour(chain, sea, agent):
    num_heads = AGENTS[agent].num_heads if agent == "dqn" else 3
    for recording in (chain, sea):
        config = dataclasses.replace(
            recording.config, agent_name=agent, agent=dataclasses.replace(AGENTS[agent], num_heads=num_heads)
        )
        parts = {"goes_right": recording.goes_right[:, :num_heads], "values": recording.values[:, :num_heads]}
        other = recording._replace(config=config, **parts)
        assert {other.colour(episode) for episode in range(15)} == {AGENT_COLOURS[agent]}
        assert other.acting(15) is None
        picture = np.asarray(LearningScene(other).draw(15))
        left, top, right, bottom = LearningScene(other).world.places
        places = picture[top:bottom, left:right].reshape(-1, 3)
        assert (places == rgb(AGENT_COLOURS[agent])).all(axis=1).mean() > 0.1


@pytest.mark.integration
def test_a_training_that_cannot_be_repeated_is_said(runs, chain, tmp_path, monkeypatch, capsys):
    other = chain._replace(returns=np.where(np.arange(15) == 4, 3, chain.returns))
    monkeypatch.setattr(learning, "repeat_training", lambda config, seed, episodes: other)
    assert main([str(runs / "chain"), "--seed", "1", "--out", str(tmp_path / "a.gif")]) == 0
    assert "differs from metrics.csv from episode 5 on" in capsys.readouterr().out
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size == SIZE


@pytest.mark.integration
def test_how_much_of_a_training_is_shown(runs, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(runs / "chain" / "metrics.csv", run)
    config = parse_config(read_json(runs / "chain" / "config.json"), run)
    record = {"episodes_to_learn": {"0": 3, "1": None}, "greedy_episodes_to_learn": {"0": 4, "1": 4}}
    write_json(run / "run.json", record)
    long = dataclasses.replace(config, episodes=400)
    assert [learning.episodes_shown(run, config, seed, None) for seed in (0, 1)] == [13, 15]
    assert learning.episodes_shown(run, long, 1, None) == 15  # as far as it got
    assert learning.episodes_shown(run, long, 1, 200) == 200
    dithers = dataclasses.replace(
        config, agent=dataclasses.replace(config.deep, epsilon_start=0.1, epsilon_end=0.1)
    )
    assert learning.episodes_shown(run, dithers, 1, None) == 14


@pytest.mark.integration
def test_what_cannot_be_repeated_is_refused(runs, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(runs / "chain", run)
    (run / "metrics.csv").write_text((run / "metrics.csv").read_text().splitlines()[0] + "\n")
    config = parse_config(read_json(run / "config.json"), run)
    with pytest.raises(UserError, match="no episode of seed 1 yet"):
        learning.episodes_shown(run, config, 1, None)

    def trunk(key):
        return eqx.nn.MLP(6, 4, 4, 1, key=key)

    bootdqn.train("chain:6", episodes=2, hidden=(4,), num_heads=2, out=tmp_path / "own", trunk=trunk)
    config = parse_config(read_json(tmp_path / "own" / "config.json"), run)
    with pytest.raises(UserError, match="a trunk of its own cannot be repeated"):
        learning.require_same_network(tmp_path / "own", config, 0)


# Playing.


def player_of(run: Path, num_slots: int, seed: int = 0):
    config, snapshots = find_snapshots(run, [])
    assert config.env is not None
    return make_performers(make_stage(config.env, num_slots), config, snapshots, seed)[0]


@pytest.mark.integration
def test_bars_are_as_long_as_the_vote(runs):
    player = player_of(runs / "cartpole", 1)
    scene_of = VoteScene(player, 30)
    for scene, beliefs, actions in player.play([VOTE], 5):
        picture = scene_of.draw(scene, beliefs, actions)
        model = BootstrappedDQN.load(runs / "cartpole" / "models" / "last.safetensors")
        _, belief = model.predict(scene.obs[0])
        np.testing.assert_allclose(beliefs.q[0], belief.q, rtol=1e-5)
        np.testing.assert_array_equal(beliefs.votes[0], belief.votes)
        for action in range(2):
            left, top, right, bottom = scene_of.vote_box(action)
            row = np.asarray(picture)[(top + bottom) // 2, left + 1 : right - 1]
            blue = (row == rgb(ACCENT)).all(axis=1)
            share = float(belief.votes[action]) / model.config.deep.num_voters
            assert blue.mean() == pytest.approx(share, abs=0.02)
            assert blue[: max(round(share * len(row)) - 1, 0)].all()
        # The action with most votes is highlighted.
        name_left = scene_of.votes[0] - 20
        highlighted = [
            pixel(picture, (name_left, top, name_left, top)) for _, top, _, _ in map(scene_of.vote_box, (0, 1))
        ]
        assert highlighted[int(actions[0])] != highlighted[1 - int(actions[0])]
        assert belief.votes[int(actions[0])] == belief.votes.max()
        assert scene.pictures is not None
        game = np.asarray(picture)[scene_of.game[1] : scene_of.game[3], scene_of.game[0] : scene_of.game[2]]
        assert abs(game.mean() - scene.pictures[0].mean()) < 2
    assert len(scene_of.entropies) == 6
    assert scene_of.total == 5


@pytest.mark.integration
def test_the_return_and_the_end_of_an_episode(runs):
    player = player_of(runs / "cartpole", 1)
    seen = list(player.play([VOTE], 600))
    assert [bool(scene.over[0]) for scene, _, _ in seen] == [False] * (len(seen) - 1) + [True]
    assert sum(float(scene.reward[0]) for scene, _, _ in seen) == len(seen) - 1
    again = list(player.play([VOTE], 600))
    assert len(again) == len(seen)
    for (one, _, _), (other, _, _) in zip(seen, again, strict=True):
        np.testing.assert_array_equal(one.obs, other.obs)
        assert one.pictures is not None
        assert other.pictures is not None
        np.testing.assert_array_equal(one.pictures[0], other.pictures[0])


@pytest.mark.integration
@pytest.mark.parametrize("name", ["cartpole", "pong"])
def test_heads_start_alike_and_differ_by_themselves(runs, name):
    player = player_of(runs / name, 3)
    steps = list(player.play(range(3), 30))
    first, _, _ = steps[0]
    assert first.pictures is not None
    for head in (1, 2):
        np.testing.assert_array_equal(first.obs[0], first.obs[head])
        np.testing.assert_array_equal(first.pictures[0], first.pictures[head])
    for scene, beliefs, actions in steps:
        q = np.asarray(beliefs.q)  # [slots, heads, actions]
        if name == "cartpole":  # where no action is random
            assert actions.tolist() == [int(q[head, head].argmax()) for head in range(3)]
        for head in (1, 2):
            if (actions == actions[0]).all() and (scene.obs[0] == scene.obs[head]).all():
                np.testing.assert_allclose(q[0], q[head], atol=1e-5)


@pytest.mark.integration
def test_random_actions_are_the_same_for_all_heads(runs):
    player = player_of(runs / "pong", 3)
    config = dataclasses.replace(player.config, evaluation_epsilon=1.0)
    actions = np.stack([actions for _, _, actions in player._replace(config=config).play(range(3), 40)])
    assert (actions == actions[:, :1]).all()
    assert len(np.unique(actions)) > 3


@pytest.mark.integration
def test_a_head_that_has_ended_is_dim_and_keeps_its_return(runs):
    player = player_of(runs / "cartpole", 3)
    mosaic, bright = HeadsScene(player), []
    scene, ((_, beliefs, _),) = player.stage.reset(1), player.play(range(3), 0)
    for step in range(200):  # who pushes now left, now right, falls later
        actions = np.array([0, step % 2, 1])
        picture = np.asarray(mosaic.draw(scene, beliefs, actions))
        tiles = [picture[top:bottom, left:right] for left, top, right, bottom in mosaic.tiles]
        bright.append([int((tile == 255).all(axis=2).sum()) > 10_000 for tile in tiles])
        if scene.over.all():
            break
        scene = player.stage.step(actions)
    assert mosaic.over.all()
    assert mosaic.totals.tolist() == mosaic.lengths.tolist()  # a point a step
    assert len(set(mosaic.lengths)) > 1
    assert max(mosaic.lengths) == len(bright) - 1
    for head, length in enumerate(mosaic.lengths):
        assert [frame[head] for frame in bright] == [True] * length + [False] * (len(bright) - length)


@pytest.mark.parametrize(
    "name", ["atari:seaquest", pytest.param("atari:pong,modern", marks=pytest.mark.integration)]
)
def test_the_camera_sees_what_is_played(name):
    """Frames in colour, made grey, are what a game in grey shows at the same step."""
    stage = AtariStage(name, 2)
    # Without the maximum of two frames, which for colours is another than for brightness.
    stage.camera.close()
    plain = dataclasses.replace(protocol_of(name), height=210, width=160, stack=1, max_pool=False)
    stage.camera, grey = AtariEnvs(name, 2, dataclasses.replace(plain, grey=False)), AtariEnvs(name, 2, plain)
    rng, total = np.random.default_rng(0), 0.0
    scene, expected = stage.reset(3), grey.reset([3, 3])
    for _ in range(300):
        assert scene.pictures is not None
        for picture, brightness in zip(scene.pictures, expected[:, 0], strict=True):
            assert np.abs(picture @ (0.299, 0.587, 0.114) - brightness).max() < 1
        actions = rng.integers(stage.num_actions, size=2)
        scene, step = stage.step(actions), grey.step(actions)
        np.testing.assert_array_equal(scene.reward, step.reward)
        np.testing.assert_array_equal(scene.over, step.terminated)
        expected, total = step.obs, total + np.abs(step.reward).sum()
        if scene.over.any():
            break
    assert total > 0
    assert (scene.obs.shape, len(stage.action_names)) == ((2, 4, 84, 84), stage.num_actions)
    stage.close()
    grey.close()


def test_a_slot_that_has_ended_stays_as_it_is():
    stage = AtariStage("atari:pong", 2)
    stage.player.protocol = stage.camera.protocol = dataclasses.replace(
        stage.player.protocol, max_episode_frames=8
    )
    stage.reset(0)
    scenes = [stage.step(np.array([2, 3])) for _ in range(5)]
    assert [scene.over.tolist() for scene in scenes] == [[False] * 2, *[[True] * 2] * 4]
    for scene in scenes[2:]:
        assert scene.pictures is not None
        assert scenes[1].pictures is not None
        np.testing.assert_array_equal(scene.pictures[0], scenes[1].pictures[0])
    stage.close()


def test_actions_have_names():
    assert AtariStage("atari:freeway", 1).action_names == ["noop", "up", "down"]
    stage = GymStage("CartPole-v1", 1)
    assert (stage.action_names, stage.fps) == (["action 0", "action 1"], 30)
    stage.close()


@pytest.mark.integration
@pytest.mark.parametrize("name", ["cartpole", "pong"])
def test_videos_of_games(runs, tmp_path, capsys, name):
    by_vote, by_heads = tmp_path / "vote.mp4", tmp_path / "heads.mp4"
    assert main([str(runs / name), "--out", str(by_vote), "--seconds", "0.5"]) == 0
    fps = 30 if name == "cartpole" else 15
    frames = frames_of(by_vote)
    assert 5 < len(frames) <= round(fps / 2) + round(1.5 * fps)
    assert f"{len(frames)} frames" in capsys.readouterr().out
    assert main([str(runs / name), "--out", str(by_heads), "--heads", "--seconds", "0.2"]) == 0
    assert len(frames_of(by_heads)) == fps // 5
    # The file of the model alone will do, too.
    model = runs / name / "models" / "last.safetensors"
    assert main([str(model), "--seconds", "0.5"]) == 0
    assert model.with_suffix(".mp4").read_bytes() == by_vote.read_bytes()


@pytest.mark.integration
def test_two_models_one_after_the_other(runs, tmp_path):
    run, one, two = runs / "cartpole", tmp_path / "one.mp4", tmp_path / "two.mp4"
    model = run / "models" / "last.safetensors"
    assert main([str(run), "--out", str(one), "--seconds", "0.3"]) == 0
    assert main([str(run), "--out", str(two), "--seconds", "0.3", "--from", str(model), str(model)]) == 0
    frames, twice = frames_of(one), frames_of(two)
    assert len(twice) == 2 * len(frames)
    for index, frame in enumerate(frames):
        assert np.abs(frame.astype(int) - twice[len(frames) + index]).mean() < 1


@pytest.mark.integration
def test_checkpoints_can_be_watched(runs, tmp_path):
    run = runs / "cartpole"
    folder = run / "checkpoints"
    manifests = sorted(folder.glob("*.json"))
    assert len(manifests) == 2
    _, by_folder = find_snapshots(run, [folder])
    assert [snapshot.title for snapshot in by_folder] == [f"after {int(path.stem):,} steps" for path in manifests]
    _, by_file = find_snapshots(run, [manifests[-1]])
    _, by_arrays = find_snapshots(run, [by_file[0].path])
    _, (last,) = find_snapshots(run, [])
    assert last.title == "last model, after 150 steps"
    for found in (by_folder[-1], by_file[0], by_arrays[0]):
        assert found.arrays.keys() == last.arrays.keys()
        for name, array in last.arrays.items():
            np.testing.assert_array_equal(found.arrays[name], array)
    moved = tmp_path / "best.safetensors"
    shutil.copy(last.path, moved)
    _, (alone,) = find_snapshots(moved, [])
    assert alone.title == "best model"


class Blind(gymnasium.Env[np.ndarray, np.int64]):
    """Says that it can be drawn, and cannot."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def render(self):
        raise RuntimeError("no screen\nat all")


@pytest.mark.integration
def test_what_draws_no_pictures_can_be_watched_all_the_same(runs, tmp_path):
    out = tmp_path / "host.gif"
    for options in ([], ["--heads"]):
        assert main([str(runs / "host"), "--out", str(out), "--seconds", "0.4", *options]) == 0
        with Image.open(out) as gif:
            assert gif.size == SIZE
    assert GymStage("chain:6", 1).no_picture == "this environment draws no pictures"
    gymnasium.register("Blind-v0", lambda **options: Blind(**options))
    try:
        stage = GymStage("Blind-v0", 2)
        scene = stage.reset(0)
        assert (scene.pictures, stage.no_picture) == (None, "RuntimeError: no screen")
        assert stage.step(np.array([0, 1])).pictures is None
    finally:
        del gymnasium.registry["Blind-v0"]


@pytest.mark.integration
def test_beliefs_on_the_canvas_that_no_run_has_yet(runs):
    """Many actions and heads, all tied: everything has a place, and nothing divides by zero."""
    player = player_of(runs / "pong", 1)
    many = dataclasses.replace(player.config, agent=dataclasses.replace(player.config.agent, num_heads=60))
    player = player._replace(config=many)
    picture = np.zeros((210, 160, 3), np.uint8)
    scene = Scene(np.zeros((1, 4, 84, 84)), np.zeros(1, np.float32), np.zeros(1, bool), [picture])
    q, votes = np.zeros((1, 60, 6)), np.full((1, 6), 10.0)
    belief: Any = Belief(q, q.mean(1), q.std(1), votes, np.full(1, np.log(6)))  # pyright: ignore[reportArgumentType]
    assert VoteScene(player, 15).draw(scene, belief, np.array([2])).size == SIZE


# Mistakes.


@pytest.fixture(scope="module")
def mistaken(runs, tmp_path_factory) -> Path:
    """Runs, and what is wrong with some."""
    place = tmp_path_factory.mktemp("mistaken")
    for name in ("chain", "cartpole", "pong"):
        shutil.copytree(runs / name, place / name)
    (place / "a.gif").mkdir()
    config = read_json(runs / "cartpole" / "config.json")
    (place / "going" / "checkpoints").mkdir(parents=True)
    for name, record in (("gone", config), ("going", config), ("neither", {})):
        write_json(place / name / "config.json", record)
    shutil.copytree(runs / "cartpole", place / "unnamed")
    config = read_json(place / "unnamed" / "config.json")
    write_json(place / "unnamed" / "config.json", {**config, "env": None})
    model = BootstrappedDQN.load(place / "unnamed" / "models" / "last.safetensors")
    model.config = dataclasses.replace(model.config, env=None)
    model.save(place / "unnamed" / "models" / "last.safetensors")
    psrl = RunConfig(loop="tabular", env="chain:6", agent_name="psrl", agent=TABULAR_AGENTS["psrl"])
    write_json(place / "psrl" / "config.json", dataclasses.asdict(psrl))
    return place


@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "no file missing/config.json; is missing a run directory?"),
        (["missing.safetensors"], "no model file at missing.safetensors"),
        (["{runs}/chain", "--out", "a.avi"], "a video ends in .mp4 or .gif, got a.avi"),
        (["{runs}/chain", "--out", "{runs}/a.gif"], "is a directory"),
        (["{runs}/chain", "--out", "{runs}/chain/run.json/a.gif"], "cannot write to .*run.json; choose another"),
        (["{runs}/chain", "--heads"], "shows all heads already"),
        (["{runs}/chain", "--from", "x"], "--from is for games"),
        (["{runs}/chain", "--seconds", "3"], "--seconds is for games"),
        (["{runs}/chain", "--seed", "7"], "has seeds 0, 1, not 7"),
        (["{runs}/chain", "--seed", "-1"], "--seed must not be negative"),
        (["{runs}/chain", "--episodes", "16"], "has episodes 1 to 15; --episodes was 16"),
        (["{runs}/chain", "--fps", "0"], "--fps must be above 0 and at most 60, got 0"),
        (["{runs}/chain/models/seed0.safetensors"], "give its run directory in place of the model"),
        (["{runs}/cartpole", "--episodes", "3"], "--episodes is for learning"),
        (["{runs}/cartpole", "--from", "{runs}/cartpole"], "holds no checkpoints"),
        (["{runs}/cartpole", "--from", "{runs}/pong/models/last.safetensors"], "is a model of atari:pong"),
        (["{runs}/cartpole", "--from", "{runs}/000000000100-0123.safetensors"], "no checkpoint at"),
        (["{runs}/cartpole/models/last.safetensors", "--from", "x"], "--from goes with a run directory"),
        (["{runs}/gone"], "it is not among the files of the run; train again"),
        (["{runs}/going"], "the run has not ended; --from .*going/checkpoints shows its checkpoints"),
        (["{runs}/psrl"], "psrl has no heads to watch; boot has"),
        (["{runs}/unnamed"], "has no name by which it could be made again"),
        (["{runs}/neither"], "it has neither steps nor episodes"),
    ],
)
def test_mistakes_are_said_and_leave_nothing(mistaken, monkeypatch, arguments, message):
    monkeypatch.chdir(mistaken)
    before = sorted(mistaken.rglob("*"))
    with pytest.raises(UserError, match=message):
        main([argument.format(runs=mistaken) for argument in arguments])
    assert sorted(mistaken.rglob("*")) == before


@pytest.mark.integration
def test_without_ffmpeg_there_are_gifs(runs, chain, tmp_path, monkeypatch):
    real = importlib.import_module

    def without(name: str):
        if name == "imageio_ffmpeg":
            raise ModuleNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setattr(learning, "repeat_training", lambda config, seed, episodes: chain)
    with pytest.raises(UserError, match=r"pip install 'bootdqn\[video\]'; a .gif needs nothing"):
        main([str(runs / "chain"), "--out", str(tmp_path / "a.mp4")])
    assert main([str(runs / "chain"), "--out", str(tmp_path / "a.gif"), "--seed", "1"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]
