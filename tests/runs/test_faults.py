"""Killed processes, full disks, folders that cannot be written: nothing is lost, results are the same."""

import functools
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import cli_helpers
import pytest
from fault_helpers import TRAIN, command, start, undisturbed
from run_helpers import assert_same_results, results

from homing.runs.folder import RunFolder


@pytest.fixture(scope="module")
def homing(tmp_path_factory):
    """`command` with one cache for all tests, as on a user's machine."""
    return functools.partial(command, undisturbed(tmp_path_factory.getbasetemp()).cache)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = undisturbed(tmp_path_factory.getbasetemp()).path
    assert RunFolder(path).summary()["status"] == "finished"
    return path


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(tmp_path, homing, whole):
    path = tmp_path / "run"
    train = (*TRAIN, "--out", path)
    # Before the first checkpoint; while one is written; with rows on the disk that no checkpoint covers.
    for line, fault in (
        (train, "line:1"),
        (("resume", path), "checkpoint:2"),
        (("resume", path), "rows:1"),
    ):
        code, said = homing(*line, fault=fault)
        assert code == -signal.SIGKILL, said
        assert not (path / "summary.json").exists()
    code, said = homing("resume", path)
    assert code == 0, said
    begun = [session["iteration"] for session in RunFolder(path).sessions()]
    assert begun[0] == begun[1] == 0
    assert 0 < begun[2] <= begun[3]
    assert_same_results(path, whole)
    assert not list((path / "checkpoints").glob("*tmp*"))


@pytest.mark.slow
def test_a_killed_run_goes_on_with_kept_traces_to_the_same_bits(tmp_path, whole):
    path, kept = tmp_path / "run", tmp_path / "cache"
    code, said = command(kept, *TRAIN, "--out", path, fault="rows:3")
    assert code == -signal.SIGKILL, said
    written = set((kept / "homing-exports").iterdir())
    assert len(written) == 3
    code, said = command(kept, "resume", path)
    assert code == 0, said
    assert set((kept / "homing-exports").iterdir()) == written  # the same settings: none traced anew
    assert_same_results(path, whole)


def test_a_full_disk_keeps_earlier_checkpoints_and_says_so(tmp_path, homing, whole):
    path = tmp_path / "run"
    code, said = homing(*TRAIN, "--out", path, fault="disk:2")
    assert code == 2, said
    assert "cannot write a checkpoint" in said
    assert "the earlier one of iteration 7 is kept" in said
    assert f"homing resume {path}" in said.splitlines()[-1] or "homing: cannot write" in said
    kept = [int(entry.name) for entry in (path / "checkpoints").iterdir() if entry.name.isdecimal()]
    assert kept == [7]
    code, said = homing("resume", path)
    assert code == 0, said
    assert RunFolder(path).sessions()[-1]["iteration"] == 7
    assert_same_results(path, whole)


def test_a_run_in_use_is_refused_and_stops_cleanly_on_request(tmp_path, tmp_path_factory, capsys):
    path = tmp_path / "run"
    process = start(undisturbed(tmp_path_factory.getbasetemp()).cache, *TRAIN, "--out", path, fault="pause:2")
    try:
        while not (path / "metrics.jsonl").exists() or len(RunFolder(path).rows()) < 4:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        code, out, err = cli_helpers.command(capsys, "resume", path)
        assert code == 2
        assert f"in use by process {process.pid}" in out + err
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert f"continue with: homing resume {path}" in said
    assert "Traceback" not in said
    assert (path / "policies" / "last.safetensors").exists()
    last = max(int(entry.name) for entry in (path / "checkpoints").iterdir())
    assert results(path)[0][-1]["iteration"] <= last


def test_a_folder_that_cannot_be_written_is_refused_before_compiling(tmp_path, monkeypatch):
    from run_helpers import probe_config

    from homing.config import run as run_settings
    from homing.errors import HomingError
    from homing.runs.progress import Lines
    from homing.training import runner

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run_settings, "resolve", lambda id: id)
    config = probe_config()
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(HomingError, match=r"cannot write to .*Permission denied"):
        runner.start(config, tmp_path / "run", Lines(quiet=True), parts=SimpleNamespace(data_file=None))
    assert not (tmp_path / "run").exists()
