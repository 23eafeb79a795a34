"""The command line, called inside the test's process."""

import time

import pytest

from homing.cli.main import main

SECONDS = 10.0  # of CPU time: what is refused is refused before anything compiles


def command(capsys, *args):
    """Exit code, what was printed, what was complained about."""
    code = 0
    try:
        main([str(arg) for arg in args])
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return code, out, err


def check_refused(capsys, args, code=2):
    """One message without a traceback and the right exit code, soon; returns the message."""
    start = time.process_time()
    got, out, err = command(capsys, *args)
    seconds = time.process_time() - start
    said = out + err
    assert got == code, f"{args}: exit code {got}\n{said}"
    assert "Traceback" not in said and "unexpected error" not in said, said
    assert said.strip()
    assert seconds < SECONDS
    return " ".join(said.replace("│", " ").split())


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Names of what a test puts into the folder in which its commands run: they leave nothing else there."""
    names: set[str] = set()
    monkeypatch.chdir(tmp_path)
    yield names
    assert {path.name for path in tmp_path.iterdir()} == names
