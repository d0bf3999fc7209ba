"""Writes video files: MP4 for browsers, or GIF, which needs no further package."""

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
"""Longest duration of a frame in milliseconds; the format has 16 bits for hundredths of a second."""
_FOR_BROWSERS = (
    *("-codec:v", "libx264", "-preset", "fast", "-crf", "16", "-pix_fmt", "yuv420p", "-movflags", "+faststart"),
    *("-vf", "scale=out_color_matrix=bt709:out_range=tv"),
    *("-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"),
)
"""Options of ffmpeg for a video that all browsers play: H.264, index first, colours as usual for this size."""


class Video(NamedTuple):
    """A video file that has been written."""

    path: Path
    frames: int
    seconds: float
    size: int
    """Size of the file in bytes."""


def require_video(path: Path) -> None:
    """Raise `UserError` if no video can be written to `path`; called before any work is done."""
    require(path.suffix in SUFFIXES, f"a video ends in {' or '.join(SUFFIXES)}, got {path}")
    require_writable(path)
    if path.suffix == ".mp4":
        _ffmpeg()


def write_video(path: Path, frames: Iterable[Image.Image], fps: float) -> Video:
    """Write a video; an existing file is replaced only once the new one is complete.

    Args:
        path: the file, with one of `SUFFIXES`.
        frames: RGB images of one size, of even width and height.
        fps: frames per second.
    """
    write = _write_mp4 if path.suffix == ".mp4" else _write_gif
    with _replacing(path) as temporary:
        count = write(temporary, iter(frames), fps)
    return Video(path, count, count / fps, path.stat().st_size)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which replaces it on success and is removed on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_mp4(path: Path, frames: Iterator[Image.Image], fps: float) -> int:
    """Write an MP4 through a pipe; imageio-ffmpeg would run Python between fork and exec, which JAX warns of."""
    first = next(frames)
    command = [_ffmpeg(), "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{first.width}x{first.height}", "-r", f"{fps:.6f}", "-i", "-", *_FOR_BROWSERS, str(path)]
    count, is_whole = 0, False
    with tempfile.TemporaryFile() as messages:
        # In its own process group, so that Ctrl-C reaches only this process.
        ffmpeg = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=messages, process_group=0)
        assert ffmpeg.stdin is not None
        try:
            for frame in itertools.chain([first], frames):
                data = frame.tobytes()
                try:
                    ffmpeg.stdin.write(data)
                except BrokenPipeError:  # its own message says what went wrong
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
    """Write a GIF frame by frame, as `save` of Pillow would hold all frames in memory."""
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
    # The method with the smallest error of the worst colour, so that small legends keep theirs.
    return image.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)


def _milliseconds(frames: int, fps: float) -> int:
    """The time after a number of frames, in milliseconds and rounded to hundredths of a second."""
    return 10 * round(100 * frames / fps)


def _ffmpeg() -> str:
    """The path of the ffmpeg program."""
    try:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UserError(
            "an .mp4 needs imageio-ffmpeg: pip install 'bootdqn[video]'; a .gif needs nothing: --out FILE.gif"
        ) from None
