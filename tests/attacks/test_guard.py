"""The last line of defence: errors that nothing expected, machines that refuse, pipes that close."""

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import command, kept  # noqa: F401

from homing.cli import guard
from homing.cli.main import main


def test_an_unexpected_error_is_one_line_and_its_traceback_a_file(capsys, monkeypatch, tmp_path):
    def fails(*_):
        raise RuntimeError("a bug\nwith lines")

    monkeypatch.setattr("homing.system.doctor.examine", fails)
    code, out, err = command(capsys, "doctor")
    assert code == 1 and not out
    assert err.startswith("homing: unexpected error: RuntimeError: a bug; please report it, traceback in /")
    assert len(err.splitlines()) == 1
    path = err.partition("traceback in ")[2].split()[0]
    text = Path(path).read_text()
    Path(path).unlink()
    assert "Traceback" in text and "def fails" not in text and "a bug" in text
    monkeypatch.setenv(guard.DEBUG, "1")
    with pytest.raises(RuntimeError):
        main(["doctor"])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "/x/y"), "'/x/y': Permission denied"),
        (OSError(28, "No space left on device", "/x"), "No space left"),
        (MemoryError("17 GiB"), "out of memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "lower num_envs"),
    ],
)
def test_what_the_machine_refuses_is_no_bug(capsys, monkeypatch, error, words):
    def fails(*_):
        raise error

    monkeypatch.setattr("homing.system.doctor.examine", fails)
    code, _, err = command(capsys, "doctor")
    assert code == 1
    assert words in err and "unexpected" not in err and len(err.splitlines()) == 1


class Closed(io.StringIO):
    """An output whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")

    def fileno(self):
        return os.open(os.devnull, os.O_WRONLY)


@pytest.mark.parametrize(
    "line", ["envs --json", "envs", "policies --help", "--help", "--version", "study list"]
)
def test_a_closed_pipe_ends_a_command_quietly(capsys, monkeypatch, line):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Closed())
        with pytest.raises(SystemExit) as end:
            main(line.split())
    assert end.value.code in (guard.CLOSED_PIPE, 1)  # 1 where rich, which prints tables, noticed first
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("line", ["envs --json", "envs", "--help", "study list --json"])
def test_a_real_pipe_that_closes(line):
    command = f"{shlex.quote(sys.executable)} -m homing {line} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
