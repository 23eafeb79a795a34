"""The folder of a run: whole files, one writer, rows that are neither lost nor doubled."""

import dataclasses
import json
import os

import pytest
from run_helpers import probe_config, probe_envs  # noqa: F401

from homing.config.run import RunConfig, SaveConfig, from_json, run_config, to_json
from homing.errors import ConfigError, HomingError
from homing.runs import folder as run_folder
from homing.runs.folder import RunFolder, WriteError, git_state, session_facts, write_whole

pytestmark = pytest.mark.usefixtures("probe_envs")


def test_config_survives_json(tmp_path):
    config = probe_config(eval_env="other", env_options={"task.within": 0.3})
    folder = RunFolder(tmp_path / "run")
    with folder.held():
        folder.write_config(config)
    assert folder.config() == config
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["gamma"] == 0.99


def test_a_setting_from_another_version_is_named():
    content = to_json(probe_config())
    content["train"] = {**content["train"], "num_env": 3}
    with pytest.raises(HomingError, match="num_envs"):
        from_json(content)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (3, 3)}, "named twice"),
        ({"seeds": (-1,)}, "at least 0 and at most"),
    ],
)
def test_impossible_seeds_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(probe_config(), **changes)


def test_save_settings_are_checked():
    with pytest.raises(ConfigError, match="keep_checkpoints"):
        SaveConfig(keep_checkpoints=0)
    with pytest.raises(ConfigError, match="checkpoint_minutes"):
        SaveConfig(checkpoint_minutes=-1)


def test_changes_find_the_part_they_belong_to():
    config = run_config("crl", "walk", changes={"gamma": 0.9, "batch_size": 7, "keep_checkpoints": 5})
    assert isinstance(config, RunConfig)
    assert (config.settings.gamma, config.train.batch_size, config.save.keep_checkpoints) == (0.9, 7, 5)
    with pytest.raises(HomingError, match="did you mean 'batch_size'"):
        run_config("crl", "walk", changes={"batchsize": 7})


def test_a_folder_in_use_is_refused_and_free_again_afterwards(tmp_path):
    in_use = pytest.raises(HomingError, match=f"in use by process {os.getpid()}")
    with RunFolder(tmp_path).held(), in_use, RunFolder(tmp_path).held():
        pass
    with RunFolder(tmp_path).held():
        pass


def test_only_an_empty_folder_takes_a_new_run(tmp_path):
    RunFolder(tmp_path / "new").check_new()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        RunFolder(tmp_path).check_new()
    with pytest.raises(ConfigError, match="is a file"):
        RunFolder(tmp_path / "notes.txt").check_new()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="homing resume"):
        RunFolder(tmp_path).check_new()


def test_commands_of_messages_can_be_copied(tmp_path):
    (tmp_path / "my run").mkdir()
    (tmp_path / "my run" / "config.json").write_text("{}")
    with pytest.raises(ConfigError) as error:
        RunFolder(tmp_path / "my run").check_new()
    assert f"`homing resume '{tmp_path / 'my run'}'`" in str(error.value)


def test_what_is_no_run_is_told_so(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        RunFolder.existing(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        RunFolder.existing(tmp_path / "nothing")


def test_runs_in_a_folder_are_named(tmp_path):
    for n, name in enumerate(("a", "b", "runs/c", "d")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        os.utime(tmp_path / name / "config.json", (n, n))
    with pytest.raises(ConfigError) as error:
        RunFolder.existing(tmp_path)
    newest = ", ".join(str(tmp_path / name) for name in ("d", "runs/c", "b"))
    assert str(error.value).endswith(f"holds no run (no config.json); name a run in it: {newest} and 1 more")


def rows(*iterations):
    return [{"seed": s, "iteration": i, "x": 0.1 + i} for i in iterations for s in (3, 4)]


def test_rows_after_an_iteration_are_forgotten(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append(rows(1))
    folder.append(rows(2, 3))
    assert folder.cut_back(2) == rows(1, 2)
    folder.append(rows(3))
    assert folder.rows() == rows(1, 2, 3)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows(1, 2, 3)


def test_half_a_line_is_passed_over_and_removed(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append(rows(1))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"seed": 3, "itera')
    assert folder.rows() == rows(1)
    folder.cut_back(1)
    folder.append(rows(2))
    assert folder.rows() == rows(1, 2)


def test_rows_are_written_all_or_none(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.append(rows(1))

    def full(file, content):
        os.write(file, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "_write_all", full)
    with pytest.raises(WriteError, match="No space left"):
        folder.append(rows(2))
    assert folder.rows() == rows(1)
    assert (tmp_path / "metrics.jsonl").read_bytes().endswith(b"\n")


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def refuse(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(WriteError):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_an_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_sessions_add_up_and_git_is_optional(tmp_path):
    folder = RunFolder(tmp_path)
    folder.add_session({"iteration": 0})
    folder.add_session({"iteration": 5})
    assert [s["iteration"] for s in folder.sessions()] == [0, 5]
    assert git_state(tmp_path) is None
    assert set(session_facts()) >= {"time", "versions", "device", "git"}
