"""Files of images and videos: PNG, GIF, WebP and MP4."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track

from homing.errors import ConfigError, HomingError

FORMATS = (".png", ".gif", ".mp4", ".webp")
MAX_FRAME_RATE = 30.0  # frames per second
SECONDS_BETWEEN_LINES = 5.0  # of progress where stderr is no terminal
CRF = 25  # constant rate factor of H.264: 0 lossless to 51
WEBP_QUALITY = 55


def check_output(path: str | Path) -> Path:
    """The path of an image or video; raises for an unsupported file format."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ConfigError(
            f"an image or video ends in {', '.join(FORMATS)}, not in {path.suffix or path.name!r}"
        )
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give a file in it")
    return path


def frame_step(dt: float) -> int:
    """Environment steps per frame, such that the frame rate is at most `MAX_FRAME_RATE`."""
    return max(1, math.ceil(1.0 / (dt * MAX_FRAME_RATE)))


def save(frames: Iterable[np.ndarray], path: str | Path, fps: float) -> Path:
    """Write an image (the last frame) or a video, by the file extension."""
    path = check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        Image.fromarray(deque(frames, maxlen=1)[0]).save(path)
    elif path.suffix == ".mp4":
        _save_mp4(frames, path, fps)
    else:
        _save_animation(frames, path, fps)
    return path


def _save_animation(frames: Iterable[np.ndarray], path: Path, fps: float) -> None:
    """A GIF or an animated WebP that repeats for ever."""
    pictures = (Image.fromarray(frame) for frame in frames)
    first = next(pictures)
    options: dict[str, Any] = {"duration": round(1000.0 / fps), "loop": 0}
    if path.suffix == ".webp":
        options |= {"quality": WEBP_QUALITY, "method": 4}
    first.save(path, save_all=True, append_images=pictures, **options)


def _save_mp4(frames: Iterable[np.ndarray], path: Path, fps: float) -> None:
    """H.264, encoded by the ffmpeg that imageio brings.

    imageio's own writer starts ffmpeg with a `preexec_fn`, hence with a fork of this process, whose JAX threads could
    hold a lock at that moment; a plain `Popen` does not fork.
    """
    frames = iter(frames)
    first = next(frames)
    with tempfile.TemporaryFile() as log:
        encoder = subprocess.Popen(
            _ffmpeg(path, first.shape[1], first.shape[0], fps),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches this process alone
        )
        assert encoder.stdin is not None
        try:
            for frame in _with(first, frames):
                encoder.stdin.write(np.ascontiguousarray(frame).data)
            encoder.stdin.close()
            if encoder.wait():
                raise HomingError(_complaint(path, log))
        except BrokenPipeError as error:
            encoder.wait()
            raise HomingError(_complaint(path, log)) from error
        except BaseException:
            encoder.kill()
            encoder.wait()
            path.unlink(missing_ok=True)
            raise


def _ffmpeg(path: Path, width: int, height: int, fps: float) -> list[str]:
    import imageio_ffmpeg

    rate = str(Fraction(fps).limit_denominator(100_000))
    return [
        *(imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", rate, "-i", "-"),
        *("-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", str(CRF)),
        # H.264 with subsampled colours takes even sizes only.
        *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", str(path.absolute())),
    ]


def _with(first: np.ndarray, rest: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    yield first
    yield from rest


def _complaint(path: Path, log: IO[bytes]) -> str:
    log.seek(0)
    last = log.read().decode(errors="replace").strip().splitlines()[-1:]
    return f"ffmpeg could not write {path}: {' '.join(last) or 'no reason given'}; a .gif does without it"


def tracked(frames: Iterable[np.ndarray], count: int) -> Iterable[np.ndarray]:
    """The frames, with progress on stderr: a bar on a terminal, elsewhere a line every few seconds."""
    console = Console(stderr=True)
    if console.is_terminal:
        return track(frames, "drawing", count, console=console, transient=True)
    return _lines(frames, count)


def _lines(frames: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
    say("drawing 1 frame" if count == 1 else f"drawing {count} frames")
    said = time.monotonic()
    for done, frame in enumerate(frames):
        if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            say(f"drawing {count} frames: {done} done")
        yield frame


def say(text: str) -> None:
    """A line of progress on stderr, which leaves stdout to the result."""
    print(text, file=sys.stderr, flush=True)
