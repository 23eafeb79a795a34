"""Studies that are run, stopped, gone on with and told."""

import csv
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from run_helpers import no_key_check, patch_envs, probe_envs  # noqa: F401
from study_helpers import TESTS, TEXT, own_ledger, probe_worker  # noqa: F401

from homing.errors import ConfigError, HomingError
from homing.runs.folder import RunFolder
from homing.runs.progress import Lines
from homing.studies import planner, points, pool, report, running, spec, table
from homing.studies.folder import StudyFolder
from homing.studies.points import Choice
from homing.training import runner

pytestmark = pytest.mark.usefixtures("probe_envs")

MACHINE = planner.Machine("a device", 2**30)
HERE = running.Where(workers=0, cpu=True)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT)
    return str(path)


# Running: one study, in this process, whose second program cannot learn.


def breaking(train):
    """Training that breaks, in a way that no one foresaw, for the dot energy."""

    def start_or_resume(runs, home, show, go_on):
        if home.name.startswith("dot"):
            raise RuntimeError("the sky has fallen")
        return train(runs, home, show, go_on)

    return start_or_resume


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Finished l2, failed dot."""
    home = tmp_path_factory.mktemp("study")
    (home / "tiny.toml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setattr(runner, "start_or_resume", breaking(runner.start_or_resume))
        patch_envs(patch)
        folder = running.opened(str(home / "tiny.toml"), Choice(), home / "out")
        said = []
        code = running.run(folder, {}, HERE, said.append)
    return folder, code, said


def test_a_failed_program_is_told_and_does_not_stop_the_others(ran):
    folder, code, said = ran
    assert code == 1
    told = running.status(folder)
    assert told["counts"] == {"failed": 1, "finished": 1}
    assert (told["runs"], told["runs_finished"]) == (4, 2)
    (failed,) = [program for program in told["programs"] if program["status"] == "failed"]
    assert failed["error"].endswith("RuntimeError: the sky has fallen")
    assert any("homing study retry" in line for line in said)


def test_a_finished_run_is_never_repeated_and_a_failed_one_only_when_asked(ran, monkeypatch):
    folder, _, _ = ran
    monkeypatch.setattr(runner, "start_or_resume", breaking(runner.start_or_resume))
    done = [run.path / "metrics.jsonl" for run in folder.runs() if run.path.name.startswith("l2")]
    before = [path.stat().st_mtime_ns for path in done]
    said = []
    assert running.run(folder, {}, HERE, said.append) == 1
    assert "1 programs are finished, 0 remain" in "\n".join(said)
    assert len(done) == 2 and before == [path.stat().st_mtime_ns for path in done]
    attempts = lambda: [program.state().get("attempts") for program in folder.programs()]
    assert attempts() == [1, 1]
    assert running.run(folder, {"energy": ["l2"]}, HERE, said.append, retry=True) == 0
    assert "no program has failed" in said
    assert running.run(folder, {}, HERE, said.append, retry=True) == 1
    assert attempts() == [2, 1]  # dot, l2


def test_runs_of_before_a_setting_was_known_belong_to_their_study(ran):
    folder, _, _ = ran
    point = next(p for p in points.points(folder.study(), folder.choice()) if folder.run(p.name).sessions())
    path = folder.run(point.name).path / "config.json"
    text = path.read_text()
    try:
        path.write_text(json.dumps({k: v for k, v in json.loads(text).items() if k != "init_from"}))
        folder.add_run(point)
        path.write_text(json.dumps({**json.loads(text), "episode_length": 7}))
        with pytest.raises(HomingError, match="started with other settings"):
            folder.add_run(point)
    finally:
        path.write_text(text)


def test_a_run_of_a_population_learns_as_it_does_alone(ran, tmp_path):
    folder, _, _ = ran
    run = folder.run("l2-critic_lr_0.003")
    runner.start(run.config(), tmp_path / "alone", Lines(quiet=True))
    alone = RunFolder(tmp_path / "alone").rows()
    for ours, theirs in zip(run.rows(), alone, strict=True):
        assert ours.keys() == theirs.keys()
        for name in (name for name in ours if not name.startswith(("time/", "speed/", "by_goal"))):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-3, atol=2e-4, err_msg=name)
    other = folder.run("l2-critic_lr_0.001").rows()
    assert other[-1]["train/critic_loss"] != pytest.approx(alone[-2]["train/critic_loss"], rel=1e-3)


def test_the_table_has_a_row_for_each_run_seed_and_evaluation(ran):
    folder, _, _ = ran
    with open(table.write_table(folder)) as file:
        rows = list(csv.DictReader(file))
    finished = [row for row in rows if row["energy"] == "l2"]
    assert len(finished) == 2 * 2 * 5
    assert {(row["critic_lr"], row["seed"], row["step"]) for row in finished} == {
        (lr, seed, step)
        for lr in ("0.001", "0.003")
        for seed in "01"
        for step in ("0", "560", "1040", "1440", "1920")
    }
    own = RunFolder(folder.path / "runs/l2-critic_lr_0.003").rows()[-1]
    assert float(finished[-1]["eval/success_any"]) == own["eval/success_any"]
    assert finished[0]["env"] == "walk" and finished[0]["study"] == "tiny"


def test_figure_and_numbers_are_made_again_from_the_table_alone(ran, tmp_path):
    folder, _, _ = ran
    told = report.write_report(folder.path)
    assert {path.name for path in told.files} == {"figure.png", "figure.pdf", "summary.csv", "report.md"}
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    (alone / "table.csv").write_bytes((folder.path / "table.csv").read_bytes())
    (alone / "study.toml").write_text(folder.study().text)
    again = report.write_report(alone / "table.csv")
    assert again.numbers == told.numbers
    assert (alone / "figure.png").read_bytes() == (folder.path / "figure.png").read_bytes()
    last = [row for row in table.load(folder.path / "table.csv") if row["step"] == 1920]
    wanted = np.mean([row["eval/success_any"] for row in last if row["critic_lr"] == 1e-3])
    assert told.numbers[0]["iqm"] == pytest.approx(wanted)
    assert "Learning rates matter." in (alone / "report.md").read_text()
    with pytest.raises(HomingError, match="did you mean 'eval/success_any'"):
        report.write_report(alone / "table.csv", metric_name="eval/succes_any")


@pytest.mark.parametrize("kind", ["bars", "heatmap"])
def test_other_kinds_of_figures(ran, tmp_path, kind):
    from homing.studies import figures

    folder, _, _ = ran
    axes = {"rows": "energy", "columns": "critic_lr"} if kind == "heatmap" else {"lines": "critic_lr"}
    rows = [row for row in table.load(table.write_table(folder)) if row["energy"] == "l2"]
    (path,) = figures.draw(spec.Figure(kind=kind, **axes), rows, tmp_path / "figure.png")
    assert path.stat().st_size > 5_000


def test_tables_of_several_machines_are_merged(ran, tmp_path):
    folder, _, _ = ran
    rows = table.rows_of(folder)
    parts = [tmp_path / "a.csv", tmp_path / "b.csv"]
    table.save(rows[:9], parts[0])
    table.save(rows[6:], parts[1])
    merged = table.load(table.merge(parts, tmp_path / "all.csv"))
    assert len(merged) == len(rows)
    assert table.load(table.merge([folder.path], tmp_path / "one.csv")) == merged, "a folder alone will do"
    other = [{**row, "scale": 0.5} for row in rows]
    with pytest.raises(ConfigError, match="not parts of one study"):
        table.merge([parts[0], table.save(other, tmp_path / "c.csv")], tmp_path / "no.csv")


def test_the_time_of_the_next_study_is_known_from_this_one(ran, monkeypatch):
    folder, _, _ = ran
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.path.parent / "cache"))
    device = RunFolder(folder.path / "runs/l2-critic_lr_0.001").sessions()[0]["device"]
    plan = planner.plan(points.points(folder.study())[:1], planner.Machine(device, 2**30))
    told = plan.summary()
    assert told["seconds"] > 0 and told["each"][0]["seconds"] is not None
    assert "measured" in str(plan) or "estimated" in str(plan)


def planned(path, text):
    """The plan of a study's text."""
    path.write_text(text)
    return planner.plan(
        points.points(running.opened(str(path), Choice(), path.parent / "out").study()), MACHINE
    )


def test_memory_is_that_of_each_program_s_own_batches(tmp_path):
    grid = TEXT.replace("critic_lr = [1e-3, 3e-3]", "batch_size = [32, 64]").replace(
        '"critic_lr"', '"batch_size"'
    )
    programs = planned(tmp_path / "batches.toml", grid).programs
    sizes = {one.points[0].config.train.batch_size: one.plan.sizes.batch_bytes for one in programs}
    assert sizes[64] == 2 * sizes[32] > 0


def test_every_run_of_a_program_is_checked_before_any_starts(tmp_path, monkeypatch):
    checked = []
    monkeypatch.setattr(planner, "check_together", lambda config, env, agent: checked.append(agent.config))
    planned(tmp_path / "two.toml", TEXT)
    assert {(c.energy, c.critic_lr) for c in checked} == {(e, r) for e in ("l2", "dot") for r in (1e-3, 3e-3)}


def test_a_folder_with_another_study_is_left_alone(ran, file):
    folder, _, _ = ran
    Path(file).write_text(TEXT.replace('"dot"', '"l1"'))
    with pytest.raises(ConfigError, match="holds another study"):
        running.opened(file, Choice(), folder.path)
    with pytest.raises(ConfigError, match="another scale"):
        running.opened(str(folder.path.parent / "tiny.toml"), Choice(seeds=3), folder.path)
    assert running.opened(str(folder.path), Choice(), None).path == folder.path


def test_nothing_is_written_for_a_study_that_cannot_be(tmp_path, file):
    with pytest.raises(HomingError, match="num_env"):
        running.opened(file, Choice(changes={"num_env": 3}), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(HomingError, match="paper/objectives"):
        running.opened("paper/objective", Choice(), tmp_path / "out")


# The pool.


@pytest.fixture
def pooled(monkeypatch):
    monkeypatch.setattr(pool, "worker_command", probe_worker)
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(TESTS.parent / ".cache" / "jax"))


@pytest.mark.usefixtures("pooled")
def test_a_pool_trains_in_processes_of_its_own(tmp_path, file):
    folder = running.opened(file, Choice(), tmp_path / "out")
    said = []
    only = {"energy": ["l2"]}
    assert running.run(folder, only, running.Where(workers=2, cpu=True), said.append) == 0
    told = running.status(folder)
    assert told["counts"] == {"finished": 1} and told["runs_finished"] == told["runs"] == 2
    assert running.run(folder, {}, running.Where(workers=2, cpu=True), said.append, going_on=True) == 0
    (program,) = folder.programs()  # going on means: with what was asked for
    assert program.state()["process"] != os.getpid()
    assert "1.92k of 1.92k steps" in program.log.read_text()
    assert not (program.path / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("pooled")
@pytest.mark.parametrize("fault", ["line:3", "rows:3", "checkpoint:2"])
def test_a_study_killed_at_any_moment_goes_on_where_it_was(tmp_path, file, monkeypatch, fault, ran):
    """The worker dies as by SIGKILL; the study says so, and its next start ends as if nothing had been."""
    folder = running.opened(file, Choice(), tmp_path / "out")
    only = {"energy": ["l2"]}
    where = running.Where(workers=1, cpu=True)
    monkeypatch.setenv("FAULT", fault)
    said = []
    assert running.run(folder, only, where, said.append) == 1
    (program,) = folder.programs()
    assert folder.status(program) == "failed"
    assert "SIGKILL" in program.state()["error"]
    monkeypatch.delenv("FAULT")
    # As a study that died together with its workers leaves it: no one was there to say that it failed.
    program.write_state("running", attempts=1)
    assert folder.status(program) == "interrupted"
    assert running.run(folder, only, where, said.append) == 0
    for name in ("l2-critic_lr_0.001", "l2-critic_lr_0.003"):
        ours, theirs = ([*run.rows()] for run in (folder.run(name), ran[0].run(name)))
        strip = lambda rows: [{k: v for k, v in r.items() if k[:5] not in ("time/", "speed")} for r in rows]
        assert strip(ours) == strip(theirs)


@pytest.mark.slow
@pytest.mark.usefixtures("pooled")
def test_stopping_a_pool_saves_and_says_how_to_go_on(tmp_path, file):
    import threading
    import time

    folder = running.opened(file, Choice(changes={"total_steps": 400_000}), tmp_path / "out")
    only = {"energy": ["l2"]}

    def stop():
        while not any(run.rows() for run in folder.runs()):
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    said = []
    assert running.run(folder, only, running.Where(workers=1, cpu=True), said.append) == 130
    assert f"homing study run {folder.path}" in said[-1]
    (program,) = folder.programs()
    assert folder.status(program) == "stopped" and list((program.path / "checkpoints").iterdir())
    with pytest.raises(HomingError, match="trained together"):
        folder.run("l2-critic_lr_0.001").check_alone()


def test_a_study_has_one_runner_at_a_time(ran):
    folder, _, _ = ran
    with RunFolder(folder.path).held(), pytest.raises(HomingError, match="in use"):
        running.run(StudyFolder(folder.path), {}, HERE, print)


def test_the_command_line_lists_and_tells(ran, capsys):
    from homing.cli import main

    main.main(["study", "list", "--json"])
    assert {study["name"] for study in json.loads(capsys.readouterr().out)} == set(spec.shipped())
    main.main(["study", "status", str(ran[0].path)])
    assert "the sky has fallen" in capsys.readouterr().out
    main.main(["study", "report", str(ran[0].path), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["seeds"] == 2
