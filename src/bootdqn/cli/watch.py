"""The command `bootdqn watch`: a video of what the heads believe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from PIL import Image

from bootdqn.errors import UserError, require
from bootdqn.runs.config import parse_config
from bootdqn.runs.directory import read_json
from bootdqn.runs.progress import Progress
from bootdqn.runs.records import PER_SEED, loop_of
from bootdqn.watch import learning, learning_scenes, playing_scenes
from bootdqn.watch.models import MODEL_SUFFIX, find_snapshots
from bootdqn.watch.playing import make_performers
from bootdqn.watch.stages import make_stage
from bootdqn.watch.video import Video, require_video, write_video

_DESCRIPTION = """Make a video of what the heads believe.

On a chain, DeepSea, stochastic chain or RiverSwim it shows how they learn: the training of one seed is repeated.
On Gymnasium environments and Atari games it shows how they play: by vote, or with --heads each alone.

examples:
  bootdqn watch runs/chain50
  bootdqn watch runs/cartpole --out cartpole.gif
  bootdqn watch runs/breakout --heads
  bootdqn watch runs/breakout --from runs/breakout/checkpoints --seconds 10"""


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The command line of `bootdqn watch`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run directory; or a model file of a run on a Gymnasium environment or an Atari game."""
    out: Path | None = None
    """Video to write, .mp4 or .gif; by default watch.mp4 in the run directory, or watch-heads.mp4."""
    heads: bool = False
    """Show all heads side by side, each playing alone from the same start."""
    files: Annotated[tuple[Path, ...], tyro.conf.arg(name="from")] = ()
    """Model files and checkpoints of the run, to be shown one after the other; by default its last model."""
    seed: int | None = None
    """Seed of the training to show, by default the run's first; of games, seed of the episode, by default 0."""
    episodes: int | None = None
    """Number of training episodes to show; by default until the run had learned."""
    seconds: float | None = None
    """Of games, longest duration for every model; by default 30, and not beyond the end of an episode."""
    fps: float | None = None
    """Frames per second; by default as suits the environment."""


def main(arguments: list[str]) -> int:
    """Find out what the run can show, and write the video."""
    options = tyro.cli(WatchOptions, prog="bootdqn watch", description=_DESCRIPTION, args=arguments)
    is_model = options.run.suffix == MODEL_SUFFIX
    path = options.run / "config.json"
    shows_learning = not is_model and loop_of(read_json(path), path) in PER_SEED
    for name, most in (("fps", 60), ("seconds", 3600)):
        value = getattr(options, name)
        require(value is None or 0 < value <= most, f"--{name} must be above 0 and at most {most}, got {value}")
    require(options.seed is None or options.seed >= 0, f"--seed must not be negative, got {options.seed}")
    stem = options.run.with_suffix("") if is_model else options.run / "watch"
    out = options.out or stem.with_name(f"{stem.name}{'-heads' if options.heads else ''}.mp4")
    require_video(out)
    video = _watch_learning(options, out) if shows_learning else _watch_playing(options, out)
    print(f"{video.path}: {video.frames} frames, {video.seconds:.1f} s, {video.size / 1e6:.2f} MB")
    return 0


def _watch_learning(options: WatchOptions, out: Path) -> Video:
    run, path = options.run, options.run / "config.json"
    require(not options.heads, "a video of learning shows all heads already; --heads is for games")
    require(not options.files, "a video of learning shows the whole training; --from is for games")
    require(options.seconds is None, "--episodes says how much of a training is shown; --seconds is for games")
    config = parse_config(read_json(path), path)
    seed = config.seed if options.seed is None else options.seed
    episodes = learning.episodes_shown(run, config, seed, options.episodes)
    learning.require_same_network(run, config, seed)
    recording = learning.repeat_training(config, seed, episodes)
    compared, different = learning.compare(run, recording)
    if different is None:
        print(f"repeated {episodes} episodes of seed {seed}; the {compared} that the run recorded are the same")
    else:
        print(
            f"warning: the repeated training differs from metrics.csv from episode {different} on, which can "
            "happen with other versions or another processor; the video shows the repeated one"
        )
    fps = options.fps or learning_scenes.FPS
    print(f"drawing {len(recording.ends)} frames", flush=True)
    return write_video(out, learning_scenes.draw_learning(recording, fps), fps)


def _watch_playing(options: WatchOptions, out: Path) -> Video:
    require(options.episodes is None, "--seconds says how much of a game is shown; --episodes is for learning")
    config, snapshots = find_snapshots(options.run, options.files)
    if config.env is None:
        raise UserError("the environment of this run has no name by which it could be made again")
    num_slots = config.deep.num_heads if options.heads else 1
    stage = make_stage(config.env, num_slots)
    fps = options.fps or stage.fps
    seconds = options.seconds or playing_scenes.SECONDS
    total = len(snapshots) * playing_scenes.most_frames(fps, seconds)
    bar = Progress(f"{config.env} {config.agent_name}", total=total, unit="frames")

    def frames() -> Iterator[Image.Image]:
        count = 0
        for performer in make_performers(stage, config, snapshots, options.seed or 0):
            for frame in playing_scenes.draw_playing(performer, heads=options.heads, fps=fps, seconds=seconds):
                yield frame
                count += 1
                bar.update((count, count))

    try:
        with bar:
            return write_video(out, frames(), fps)
    finally:
        stage.close()
