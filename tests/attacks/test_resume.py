"""Folders that were edited or damaged between two sessions of a run: nothing is lost or changed silently."""

import json
import shutil
import signal

import numpy as np
import pytest
from run_helpers import (  # noqa: F401
    Watch,
    assert_same_results,
    no_key_check,
    nothing_compiled,
    on_probes,
    probe_envs,
    results,
    run,
    shared_programs,
)

import homing
from homing.errors import HomingError
from homing.runs.folder import RunFolder, write_json
from homing.training import build as run_build
from homing.training import runner

pytestmark = pytest.mark.usefixtures("probe_envs", "shared_programs")
EDITED = 0.5  # a learning rate: the same one wherever one is edited, so that its programs are shared


def stop_at(iteration):
    def hook(now):
        if now == iteration:
            signal.raise_signal(signal.SIGTERM)

    return hook


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run, and one that stopped at iteration 15, after two evaluations of four."""
    home = tmp_path_factory.mktemp("runs")
    with on_probes():
        assert run(home / "whole")[0].status == "finished"
        assert run(home / "stopped", stop_at(15))[0].status == "stopped"
    return home


@pytest.fixture
def stopped(made, tmp_path):
    return shutil.copytree(made / "stopped", tmp_path / "run")


def resumed(path, **options):
    show = Watch()
    outcome = runner.resume(path, show, **options)
    assert outcome.status == "finished"
    return show


def refused(path, words, **options):
    """Resuming is refused, and changes no file."""
    before = content(path)
    with pytest.raises(HomingError, match=words) as error:
        runner.resume(path, Watch(), **options)
    assert content(path) == before
    return str(error.value)


def content(path):
    return {f: f.read_bytes() for f in path.rglob("*") if f.is_file() and f.name != "lock"}


def edit_config(path, part, **changes):
    config = json.loads((path / "config.json").read_text())
    (config[part] if part else config).update(changes)
    write_json(path / "config.json", config)


# Metrics.


def test_lost_metrics_are_said_and_noted_and_learning_goes_on(made, stopped):
    (stopped / "metrics.jsonl").unlink()
    show = resumed(stopped)
    (warning,) = show.warned
    assert (
        "has 0 of the 6 rows that were written up to the checkpoint (those of iterations 0, 7, 13)" in warning
    )
    folder = RunFolder(stopped)
    assert folder.sessions()[-1]["missing_rows"] == 6
    assert folder.sessions()[-1]["metrics_before"] == 15
    assert folder.summary()["missing_rows"] == 6
    rows, policy = results(stopped)
    whole_rows, whole_policy = results(made / "whole")
    assert rows == whole_rows[6:]
    for name in policy:
        np.testing.assert_array_equal(policy[name], whole_policy[name])
    best, whole_best = (homing.load(path, which="best") for path in (stopped, made / "whole"))
    assert best.iteration == whole_best.iteration, "the best score so far is not forgotten"


def test_an_edited_row_is_said_and_the_file_is_kept(stopped):
    text = (stopped / "metrics.jsonl").read_text()
    edited = text.replace('"iteration": 7', '"iteration": 7, "eval/extra": 1.0', 1)
    (stopped / "metrics.jsonl").write_text(edited)
    (warning,) = resumed(stopped).warned
    assert "has all 6 rows up to the checkpoint, but they are not as they were written" in warning
    assert (stopped / "metrics.jsonl.kept-1").read_text() == edited
    assert "metrics.jsonl.kept-1" in warning
    assert "missing_rows" not in RunFolder(stopped).summary()
    (stopped / "metrics.jsonl").write_text("")
    show = resumed(stopped)  # finished, and looked at all the same
    assert "has 0 rows; at the end of the run it had 10" in show.warned[0]


def test_a_line_that_is_no_row_is_named(stopped):
    path = stopped / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "not JSON\n" + "".join(lines[1:]))
    refused(stopped, "line 2 of .* is not JSON .*put the file back from a copy, or move that line elsewhere")
    path.write_text('{"seed": 3}\n')
    refused(stopped, "line 1 of .*iteration")


# Checkpoints.


def test_a_checkpoint_renamed_past_the_end_is_not_the_end(made, stopped):
    (stopped / "checkpoints/15").rename(stopped / "checkpoints/24")
    show = resumed(stopped)
    assert "24 is of iteration 15" in show.warned[0]
    assert show.pieces[0] == 16
    assert_same_results(stopped, made / "whole")


def test_lost_checkpoints_are_not_a_new_start(stopped):
    sessions = RunFolder(stopped).sessions()
    shutil.move(stopped / "checkpoints", stopped.parent / "elsewhere")
    write_json(stopped / "sessions.json", [*sessions, sessions[0] | {"iteration": 13}])
    words = "resumed from a checkpoint of iteration 13, and no checkpoint is left"
    assert f"homing resume {stopped} --accept-changes" in refused(stopped, words)


def test_a_new_start_keeps_the_rows_there_were(stopped, monkeypatch):
    shutil.move(stopped / "checkpoints", stopped.parent / "elsewhere")
    before = (stopped / "metrics.jsonl").read_text()
    edit_config(stopped, "settings", critic_lr=EDITED)
    show = Watch(stop_at(1))
    assert runner.resume(stopped, show).status == "stopped"
    assert "starts again from step 0" in show.warned[0]
    assert (stopped / "metrics.jsonl.kept-1").read_text() == before
    assert "config.json was changed since the run was started" in show.warned[1]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda notes: notes["notes"].pop("tally"), "its notes lack 'tally'"),
        (lambda notes: notes.pop("iteration"), "its notes lack 'iteration'"),
    ],
)
def test_notes_without_their_fields_are_named_and_nothing_is_removed(stopped, edit, words, capsys):
    for name in ("13", "15"):
        path = stopped / "checkpoints" / name / "notes" / "metadata"
        notes = json.loads(path.read_text())
        edit(notes)
        path.write_text(json.dumps(notes))
    before, show = content(stopped), Watch()
    with pytest.raises(HomingError, match=r"no checkpoint in .* can be used; all are kept as they are"):
        runner.resume(stopped, show)
    assert [words in warning for warning in show.warned] == [True, True]
    assert content(stopped) == before


def test_another_programs_checkpoint_is_refused(stopped):
    path = stopped / "checkpoints" / "15" / "notes" / "metadata"
    notes = json.loads(path.read_text())
    notes["notes"]["folders"] *= 2
    path.write_text(json.dumps(notes))
    refused(stopped, "does not belong to this program of 1 runs")
    notes["notes"]["folders"] = [{"rows": 3}]
    path.write_text(json.dumps(notes))
    refused(stopped, "must have config, rows, rows_digest, best, diverged")


# Settings.


def test_an_edited_learning_rate_is_refused_by_name_unless_accepted(stopped):
    old = RunFolder(stopped).config().settings.critic_lr
    edit_config(stopped, "settings", critic_lr=EDITED)
    message = refused(stopped, "was changed since the last checkpoint")
    assert f"settings.critic_lr was {old} and is {EDITED}" in message
    assert f"homing resume {stopped} --accept-changes" in message
    show = resumed(stopped, accept_changes=True)
    assert f"settings.critic_lr was {old} and is {EDITED}" in show.warned[0]
    assert RunFolder(stopped).sessions()[-1]["accepted_changes"] == [
        f"settings.critic_lr was {old} and is {EDITED}"
    ]


def test_what_a_run_started_with_cannot_be_changed(stopped):
    path = stopped / "config.json"
    write_json(path, json.loads(path.read_text()) | {"init_from": "humanoid"})
    message = refused(stopped, "A run cannot change these", accept_changes=True)
    assert 'init_from was null and is "humanoid"' in message


def test_a_finished_run_is_trained_longer_by_an_edit(made, tmp_path):
    path = tmp_path / "whole"
    shutil.copytree(made / "whole", path)
    before, last = RunFolder(path).rows(), RunFolder(path).summary()["step"]
    show = Watch()
    assert runner.resume(path, show, accept_changes=True).status == "finished"
    assert (
        f"to train longer, raise total_steps in config.json and call: homing resume {path}" in show.said[-1]
    )
    edit_config(path, "train", total_steps=2 * RunFolder(path).config().train.total_steps)
    assert "train.total_steps was" in refused(path, "was changed since the last checkpoint")
    assert runner.resume(path, Watch(stop_at(35)), accept_changes=True).status == "stopped"
    assert RunFolder(path).summary() is None, "it is not finished any more"
    resumed(path)
    assert RunFolder(path).rows()[: len(before)] == before
    assert RunFolder(path).summary()["step"] > last


def test_a_finished_run_without_a_checkpoint_is_left_alone(made, tmp_path):
    path = tmp_path / "whole"
    shutil.copytree(made / "whole", path)
    shutil.rmtree(path / "checkpoints")
    show = resumed(path, accept_changes=True)
    assert show.said[-1].endswith("nothing is left to do")


def test_what_is_saved_may_change(stopped):
    edit_config(stopped, "save", keep_checkpoints=3)
    show = Watch(stop_at(16))
    assert runner.resume(stopped, show).status == "stopped"
    assert "save.keep_checkpoints was 2 and is 3" in show.warned[0]


def test_seeds_and_agent_cannot_change(stopped):
    edit_config(stopped, None, seeds=[3, 9])
    message = refused(stopped, "A run cannot change these", accept_changes=True)
    assert "seeds was [3, 4] and is [3, 9]" in message


@pytest.mark.usefixtures("nothing_compiled")
def test_another_width_is_told_by_array_and_no_checkpoint_is_called_damaged(stopped):
    net = json.loads((stopped / "config.json").read_text())["settings"]["actor_net"]
    edit_config(stopped, "settings", actor_net=net | {"width": 24}, critic_net=net | {"width": 24})
    assert "settings.actor_net.width was 16 and is 24" in refused(stopped, "was changed")
    message = refused(stopped, "is not damaged", accept_changes=True)
    assert "['bias'] is float32[2, 3, 16] in the checkpoint and float32[2, 3, 24] in this run" in message
    assert "remove" not in message and "delete" not in message


@pytest.mark.usefixtures("nothing_compiled")
def test_another_environment_is_told_by_array(stopped, monkeypatch):
    from probes import echo

    monkeypatch.setattr(run_build, "make", lambda id, num_envs=1, **_: echo(num_envs))
    assert ".env" in refused(stopped, "in another environment")


# Files beside them.


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "sessions.json",
            "{}",
            "sessions.json: it holds an object, not a list.*the run continues without it",
        ),
        ("sessions.json", "[3]", "sessions.json: session 1: it is 3.*the run continues without it"),
        ("sessions.json", '[{"time": ', "cannot read .*sessions.json.*put it back from a copy"),
        ("summary.json", "[]", "summary.json: it holds a list; put it back from a copy, or rename it"),
        ("config.json", "[]", "config.json: a run's config is a JSON object"),
        ("config.json", '{"agent": "crl"}', "config.json: a run's config needs 'env'"),
        ("config.json", "", "cannot read .*config.json"),
        ("together.json", "{}", "trained together"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(stopped, name, text, words):
    (stopped / name).write_text(text)
    refused(stopped, words)


def test_a_lost_config_is_not_called_another_folder(stopped):
    (stopped / "config.json").unlink()
    refused(stopped, "has lost its config.json")


def test_sessions_without_their_fields_do_not_stop_a_run(stopped):
    write_json(stopped / "sessions.json", [{}])
    show = Watch(stop_at(16))
    assert runner.resume(stopped, show).status == "stopped"
    assert "not bit for bit the same" in show.warned[0]


def test_a_lost_best_policy_is_said(stopped):
    (best,) = (stopped / "policies").glob("best.*")
    best.unlink()
    show = resumed(stopped)
    assert f"{best} is missing" in show.warned[0]
    assert best.exists()
