"""Places to write to are checked before anything runs, and the message names the place that was given."""

from pathlib import Path

import pytest

from homing.cli.paths import check_folder
from homing.errors import ConfigError


def test_a_folder_that_cannot_be_made_is_named_as_it_was_given(tmp_path):
    with pytest.raises(
        ConfigError, match=r"^--out /proc/run cannot be written: /proc is not a folder that you"
    ):
        check_folder("--out", Path("/proc/run"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--out \S+/file/run cannot be written: \S+/file is not a folder"):
        check_folder("--out", tmp_path / "file" / "run")
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        check_folder("--out", tmp_path / "file")


def test_folders_that_are_there_or_can_be_made_pass(tmp_path):
    for path in (tmp_path, tmp_path / "run", tmp_path / "a" / "b"):
        assert check_folder("--out", path) == path
    assert not (tmp_path / "run").exists()
