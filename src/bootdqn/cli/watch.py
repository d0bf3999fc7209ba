"""`bootdqn watch`: a video of what the heads think."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from PIL import Image

from bootdqn.errors import UserError, require
from bootdqn.progress import StepProgress
from bootdqn.runs.directory import read_json
from bootdqn.training import parse_train_config
from bootdqn.watch import learning, learning_scenes, playing_scenes
from bootdqn.watch.models import MODEL_SUFFIX, find_snapshots
from bootdqn.watch.playing import make_players
from bootdqn.watch.stages import make_stage
from bootdqn.watch.video import Video, require_video, write_video

_DESCRIPTION = """Make a video of what the heads think.

On a chain, DeepSea, stochastic chain or RiverSwim it shows how they learn: the training of one seed is repeated.
On Gymnasium environments and Atari games it shows how they play: by vote, or with --heads each alone.

examples:
  bootdqn watch runs/chain50
  bootdqn watch runs/cartpole --out cartpole.gif
  bootdqn watch runs/breakout --heads
  bootdqn watch runs/breakout --from runs/breakout/checkpoints --seconds 10"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line of `bootdqn watch`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run directory; or a model file of a run on a Gymnasium environment or an Atari game."""
    out: Path | None = None
    """Video to write, .mp4 or .gif; by default watch.mp4 in the run directory, or watch-heads.mp4."""
    heads: bool = False
    """All heads side by side, each playing alone from the same start."""
    files: Annotated[tuple[Path, ...], tyro.conf.arg(name="from")] = ()
    """Model files and checkpoints of the run, to be shown one after the other; by default its last model."""
    seed: int | None = None
    """Which of the run's trainings to show, by default the first; of games, seed of the episode, by default 0."""
    episodes: int | None = None
    """Of a training, how many to show; by default until it had learned."""
    seconds: float | None = None
    """Of games, how long to play at most for every model; by default 30, and not beyond the end of an episode."""
    fps: float | None = None
    """Frames a second; by default as suits what is shown."""


def main(arguments: list[str]) -> int:
    """Find out what there is to see, and film it."""
    options = tyro.cli(Options, prog="bootdqn watch", description=_DESCRIPTION, args=arguments)
    is_model = options.run.suffix == MODEL_SUFFIX
    config = {} if is_model else read_json(options.run / "config.json")
    for name, most in (("fps", 60), ("seconds", 3600)):
        value = getattr(options, name)
        require(value is None or 0 < value <= most, f"--{name} must be above 0 and at most {most}, got {value}")
    require(options.seed is None or options.seed >= 0, f"--seed must not be negative, got {options.seed}")
    stem = options.run.with_suffix("") if is_model else options.run / "watch"
    out = options.out or stem.with_name(f"{stem.name}{'-heads' if options.heads else ''}.mp4")
    require_video(out)
    if "episodes" in config:
        video = _watch_learning(options, out)
    elif is_model or "steps" in config:
        video = _watch_playing(options, out)
    else:
        raise UserError(f"{options.run / 'config.json'} is not of this version: it has neither steps nor episodes")
    print(f"{video.path}: {video.frames} frames, {video.seconds:.1f} s, {video.size / 1e6:.2f} MB")
    return 0


def _watch_learning(options: Options, out: Path) -> Video:
    run, path = options.run, options.run / "config.json"
    require(not options.heads, "a video of learning shows all heads already; --heads is for games")
    require(not options.files, "a video of learning shows the whole training; --from is for games")
    require(options.seconds is None, "--episodes says how much of a training is shown; --seconds is for games")
    config = parse_train_config(read_json(path), path)
    seed = config.seed if options.seed is None else options.seed
    episodes = learning.episodes_shown(run, config, seed, options.episodes)
    learning.require_same_network(run, config, seed)
    recording = learning.repeat_training(config, seed, episodes)
    compared, different = learning.compare(run, recording)
    if different is None:
        print(f"repeated {episodes} episodes of seed {seed}; the {compared} that the run recorded are the same")
    else:
        print(
            f"warning: the repeated training is not that of metrics.csv from episode {different} on, as may be "
            "with other versions or another processor; the video shows the repeated one"
        )
    fps = options.fps or learning_scenes.FPS
    print(f"drawing {len(recording.ends)} frames", flush=True)
    return write_video(out, learning_scenes.draw_learning(recording, fps), fps)


def _watch_playing(options: Options, out: Path) -> Video:
    require(options.episodes is None, "--seconds says how much of a game is shown; --episodes is for learning")
    config, snapshots = find_snapshots(options.run, options.files)
    if config.env is None:
        raise UserError("the environment of this run has no name by which it could be made again")
    num_slots = config.agent.num_heads if options.heads else 1
    stage = make_stage(config.env, num_slots)
    fps = options.fps or stage.fps
    seconds = options.seconds or playing_scenes.SECONDS
    total = len(snapshots) * playing_scenes.most_frames(fps, seconds)
    bar = StepProgress(f"{config.env} {config.agent_name}", steps=total, begun_with=0, visible=True)

    def frames() -> Iterator[Image.Image]:
        count = 0
        for player in make_players(stage, config, snapshots, options.seed or 0):
            for frame in playing_scenes.draw_playing(player, heads=options.heads, fps=fps, seconds=seconds):
                yield frame
                count += 1
                if count == 1:
                    bar.start(count)  # all is compiled
                else:
                    bar.update(count, ())

    try:
        with bar:
            return write_video(out, frames(), fps)
    finally:
        stage.close()
