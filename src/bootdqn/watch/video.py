"""From pictures to a video file: MP4 that plays in browsers, or GIF that needs nothing to be installed."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from PIL import GifImagePlugin, Image, ImageChops

from bootdqn.errors import UserError, require
from bootdqn.runs.directory import require_writable

SUFFIXES = (".mp4", ".gif")
_LONGEST_GIF_FRAME = 60_000
"""Milliseconds; the format has 16 bits for hundredths of a second."""
_FOR_BROWSERS = (
    *("-codec:v", "libx264", "-preset", "fast", "-crf", "16", "-pix_fmt", "yuv420p", "-movflags", "+faststart"),
    *("-vf", "scale=out_color_matrix=bt709:out_range=tv"),
    *("-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"),
)
"""What all of them play: H.264, with the index at the front and colours as is usual for this size."""


class Video(NamedTuple):
    """What was written."""

    path: Path
    frames: int
    seconds: float
    size: int
    """In bytes."""


def require_video(path: Path) -> None:
    """Raise `UserError` if no video could be written to `path`; to be called before the work."""
    require(path.suffix in SUFFIXES, f"a video ends in {' or '.join(SUFFIXES)}, got {path}")
    require_writable(path)
    if path.suffix == ".mp4":
        _ffmpeg()


def write_video(path: Path, frames: Iterable[Image.Image], fps: float) -> Video:
    """Write pictures of one size; the file at `path` is replaced once the new one is whole.

    Args:
        path: ends in one of `SUFFIXES`.
        frames: RGB, of even width and height.
        fps: frames a second.
    """
    write = _write_mp4 if path.suffix == ".mp4" else _write_gif
    with _replacing(path) as temporary:
        count = write(temporary, iter(frames), fps)
    return Video(path, count, count / fps, path.stat().st_size)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A path beside `path`, of the same suffix, which takes its place if all goes well and is removed if not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_mp4(path: Path, frames: Iterator[Image.Image], fps: float) -> int:
    """Through a pipe of our own: that of imageio-ffmpeg runs Python between fork and exec, which JAX warns of."""
    first = next(frames)
    command = [_ffmpeg(), "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{first.width}x{first.height}", "-r", f"{fps:.6f}", "-i", "-", *_FOR_BROWSERS, str(path)]
    count, is_whole = 0, False
    with tempfile.TemporaryFile() as messages:
        # In a group of its own, so that Ctrl-C is for us.
        ffmpeg = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=messages, process_group=0)
        assert ffmpeg.stdin is not None
        try:
            for frame in itertools.chain([first], frames):
                data = frame.tobytes()
                try:
                    ffmpeg.stdin.write(data)
                except BrokenPipeError:  # it says itself what went wrong
                    break
                count += 1
            else:
                is_whole = True
            with contextlib.suppress(BrokenPipeError):
                ffmpeg.stdin.close()
            ffmpeg.wait()
        finally:
            ffmpeg.kill()
            ffmpeg.wait()
            with contextlib.suppress(BrokenPipeError):
                ffmpeg.stdin.close()
        if ffmpeg.returncode or not is_whole:
            messages.seek(0)
            said = messages.read().decode(errors="replace").strip().splitlines() or ["nothing"]
            raise OSError(f"ffmpeg could not write the video; it said: {said[-1]}")
    return count


def _write_gif(path: Path, frames: Iterator[Image.Image], fps: float) -> int:
    """Frame by frame, where Pillow's own `save` would hold all of them in memory."""
    count = 0
    with path.open("wb") as file:
        shown = next(frames)
        header, _ = GifImagePlugin.getheader(_quantized(shown), info={"loop": 0, "duration": 1})
        file.writelines(header)
        part, corner, since = shown, (0, 0), 0
        for frame in itertools.chain([shown], frames):
            changed = ImageChops.difference(shown, frame).getbbox()
            lasted = _milliseconds(count, fps) - since
            if changed or lasted >= _LONGEST_GIF_FRAME:
                file.writelines(_gif_frame(part, corner, lasted))
                box = changed or (0, 0, 1, 1)
                part, corner, since = frame.crop(box), box[:2], since + lasted
            shown = frame
            count += 1
        file.writelines(_gif_frame(part, corner, _milliseconds(count, fps) - since))
        file.write(b";")
    return count


def _gif_frame(part: Image.Image, corner: tuple[int, int], milliseconds: int) -> list[bytes]:
    return GifImagePlugin.getdata(_quantized(part), corner, duration=milliseconds, include_color_table=True)


def _quantized(image: Image.Image) -> Image.Image:
    # Of the methods, the one whose worst colour is nearest to the true one; small legends are not lost.
    return image.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)


def _milliseconds(frames: int, fps: float) -> int:
    """When so many frames are over, in whole hundredths of a second."""
    return 10 * round(100 * frames / fps)


def _ffmpeg() -> str:
    """The path of a program that writes MP4."""
    try:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UserError(
            "an .mp4 needs imageio-ffmpeg: pip install 'bootdqn[video]'; a .gif needs nothing: --out FILE.gif"
        ) from None
