"""Files of images and videos, and the progress of writing them."""

import os
import warnings

import imageio.v3 as iio
import numpy as np
import pytest

from homing.errors import HomingError
from homing.viz import video_files


def noise(count=5, width=96, height=64):
    return list(np.random.default_rng(0).integers(0, 255, (count, height, width, 3), np.uint8))


def test_a_film_has_no_more_frames_than_are_seen():
    assert video_files.frame_step(0.05) == 1
    assert video_files.frame_step(0.02) == 2
    assert video_files.frame_step(0.005) == 7


def test_an_mp4_is_written_without_a_fork(tmp_path):
    """JAX warns of forks, since its threads may hold locks; none must happen, not just none be shown."""
    forks = []

    os.register_at_fork(before=lambda: forks.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = video_files.save(noise(), tmp_path / "a.mp4", fps=20.0)
    assert not forks
    assert iio.immeta(out)["fps"] == 20.0
    assert len(np.asarray(iio.imread(out))) == 5


def test_odd_sizes_are_padded(tmp_path):
    out = video_files.save(noise(2, 33, 17), tmp_path / "a.mp4", fps=20.0)
    assert np.asarray(iio.imread(out)).shape == (2, 18, 34, 3)


def test_ffmpeg_failures_are_one_message(tmp_path, monkeypatch):
    made = video_files._ffmpeg(tmp_path / "a.mp4", 96, 64, 20.0)
    monkeypatch.setattr(video_files, "_ffmpeg", lambda *_: [*made[:-1], "-nonsense", made[-1]])
    with pytest.raises(HomingError, match=r"could not write .*a\.mp4: .*ption not found"):
        video_files.save(noise(200), tmp_path / "a.mp4", fps=20.0)


def test_a_film_that_is_interrupted_leaves_no_file(tmp_path):
    def interrupted():
        yield from noise(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        video_files.save(interrupted(), tmp_path / "a.mp4", fps=20.0)
    assert not list(tmp_path.iterdir())


def test_progress_is_printed_where_stderr_is_a_pipe(monkeypatch, capsys):
    monkeypatch.setattr(video_files, "SECONDS_BETWEEN_LINES", 0.0)
    frames = noise(3)
    assert len(list(video_files.tracked(frames, 3))) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["drawing 3 frames", *(f"drawing 3 frames: {k} done" for k in range(3))]
