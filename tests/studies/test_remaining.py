"""What remains of a study: seeds without a program, failed programs, queued programs, and their folders."""

import os
import shlex
import signal

import pytest
from run_helpers import no_key_check, probe_envs  # noqa: F401
from study_helpers import TEXT, own_ledger  # noqa: F401

from homing.cli import main
from homing.errors import ConfigError
from homing.runs.folder import RunFolder
from homing.studies import claims, cluster, remaining, running
from homing.studies.points import Choice

pytestmark = pytest.mark.usefixtures("probe_envs")

L2 = {"energy": ["l2"]}
SUMMARY = {"status": "finished", "seconds": 1.0}


@pytest.fixture
def study(tmp_path):
    (tmp_path / "tiny.toml").write_text(TEXT)
    return running.opened(str(tmp_path / "tiny.toml"), Choice(seeds=4), tmp_path / "out")


def finish(folder, program):
    for name in program.runs:
        folder.run(name).write_summary(SUMMARY)
    program.write_state("finished")


def trained(monkeypatch, count):
    """Instead of training, the first `count` programs are finished; then a signal, if some are left."""

    def execute(folder, left, where, say):
        for program in left[:count]:
            finish(folder, program)
        return signal.SIGINT if count < len(left) else 0

    monkeypatch.setattr(running, "_execute", execute)


def seeds_of(folder):
    """The seeds of every run by its programs, as (run, seed), sorted."""
    return sorted(
        (name.partition(".seeds_")[0], seed)
        for program in folder.programs()
        for name in program.runs
        for seed in folder.config(name).seeds
    )


ALL = [(f"l2-critic_lr_{lr}", seed) for lr in ("0.001", "0.003") for seed in range(4)]


def where(population=None, **more):
    return running.Where(workers=0, cpu=True, population=population, **more)


# Seeds.


@pytest.mark.parametrize("population", [2, 3, None])
def test_continuing_trains_the_seeds_of_parts_that_had_not_started(study, monkeypatch, population):
    trained(monkeypatch, 1)
    assert running.run(study, L2, where(1), print) == 130
    assert running.status(study)["runs_finished"] == 0  # one seed of eight
    trained(monkeypatch, 8)
    said = []
    assert running.run(study, {}, where(population), said.append, going_on=True) == 0
    assert seeds_of(study) == ALL
    assert all(study.finished(program) for program in study.programs())
    told = running.status(study)
    assert (told["runs_finished"], told["runs"]) == (2, 2)
    assert any(line.startswith("finished; make the report") for line in said)


def test_seeds_that_an_earlier_plan_lost_are_planned_again(study, monkeypatch):
    trained(monkeypatch, 1)
    running.run(study, L2, where(2), print)
    for program in study.programs()[1:]:
        (program.path / "program.json").unlink()
    running.prepare(study, running.chosen_points(study, L2), where(2), print)
    assert seeds_of(study) == ALL


def test_a_part_is_named_by_its_run_and_seeds(study):
    point = running.chosen_points(study, L2)[0]
    (part,) = remaining.missing([point], {(point.name, 0), ("another", 1)})
    assert part.name == f"{point.name}.seeds_1-3" and part.config.seeds == (1, 2, 3)
    assert remaining.missing([point], set()) == [point]
    assert remaining.missing([part], {(point.name, 2)})[0].config.seeds == (1, 3)


# Retrying.


@pytest.fixture
def failed(study, monkeypatch):
    """One failed program for each energy, with a checkpoint."""
    trained(monkeypatch, 0)
    running.run(study, {}, where(), print)
    for program in study.programs():
        program.write_state("failed", attempts=1, error="no")
        (program.path / "checkpoints" / "3").mkdir(parents=True)
    return study


def kept(folder):
    return {p.id.partition("-")[0] for p in folder.programs() if (p.path / "checkpoints").exists()}


def retry(folder, *more):
    with pytest.raises(SystemExit) as ended:
        main.main(["study", "retry", str(folder.path), "--fresh", "--workers", "0", "--cpu", *more])
    return ended.value.code


def test_a_fresh_retry_deletes_the_checkpoints_of_selected_programs_only(failed, monkeypatch):
    trained(monkeypatch, 1)
    assert retry(failed, "--only", "energy=dot") == 0
    assert kept(failed) == {"l2"}


def test_a_refused_retry_deletes_nothing(failed, capsys):
    assert retry(failed, "--only", "energy=dott") == 2
    assert kept(failed) == {"l2", "dot"}
    with RunFolder(failed.path).held():
        assert retry(failed) == 2
    assert "in use" in capsys.readouterr().err
    assert kept(failed) == {"l2", "dot"}


def test_a_retry_without_failures_does_not_call_the_study_finished(study, monkeypatch):
    trained(monkeypatch, 0)
    running.run(study, L2, where(), print)
    said = []
    assert running.run(study, {}, where(), said.append, retry=True) == 0
    assert said == [
        "no program has failed",
        f"2 runs are not finished; continue with: homing study run {study.path}",
    ]


# Queues.


class Job:
    """A local job that has started and does not end."""

    job_id = str(os.getpid())

    def done(self):
        return False


class Executor:
    def submit(self, task):
        return Job()


@pytest.fixture
def interrupted(study, monkeypatch):
    """Two programs as local jobs, one at a time; Ctrl-C while the first is queued."""

    def stop(seconds):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "make_executor", lambda *_: Executor())
        patch.setattr(cluster.time, "sleep", stop)
        options = {"array_parallelism": 1}
        jobs = running.Where("submitit-local", cpu=True, population=4, cluster=options)
        assert running.run(study, L2, jobs, print) == 130
    return study


def test_a_program_that_was_never_submitted_is_not_queued(interrupted, monkeypatch):
    assert running.status(interrupted)["counts"] == {"queued": 1, "waiting": 1}
    trained(monkeypatch, 8)
    said = []
    assert running.run(interrupted, {}, where(4), said.append, going_on=True) == 0
    assert running.status(interrupted)["counts"] == {"finished": 1, "queued": 1}
    (queued,) = [p for p in interrupted.programs() if interrupted.status(p) == "queued"]
    assert f"1 are queued as jobs: {queued.id}" in said
    assert not any(line.startswith("finished;") for line in said)


def test_a_queued_program_whose_job_is_gone_is_trained(interrupted, monkeypatch):
    monkeypatch.setattr(claims, "exists", lambda process: False)
    trained(monkeypatch, 8)
    said = []
    assert running.run(interrupted, {}, where(4), said.append, going_on=True) == 0
    assert running.status(interrupted)["counts"] == {"finished": 2}
    assert said[-1].startswith("finished; make the report")


@pytest.mark.parametrize(("pending", "finished"), [({"7_0", "7_1"}, 0), ({"7_1"}, 1), (set(), 2)])
def test_slurm_is_asked_for_the_jobs_of_queued_programs(study, monkeypatch, pending, finished):
    trained(monkeypatch, 0)
    running.run(study, {}, where(), print)
    for number, program in enumerate(study.programs()):
        program.write_state("queued", job=f"7_{number}", attempts=0)
    monkeypatch.setattr(cluster, "queue", lambda jobs: pending & set(jobs))
    trained(monkeypatch, 8)
    said = []
    assert running.run(study, {}, where(), said.append, going_on=True) == 0
    assert running.status(study)["counts"].get("finished", 0) == finished
    assert any(f"{2 - finished} are queued as jobs" in line for line in said) == (finished < 2)


def test_programs_queued_for_workers_are_left_to_them(study, monkeypatch):
    shared = running.Where("workers", cpu=True, wait=False)
    assert running.run(study, L2, shared, print) == 0
    said = []
    with monkeypatch.context() as patch:
        trained(patch, 8)
        assert running.run(study, {}, where(), said.append, going_on=True) == 0
        assert running.status(study)["counts"] == {"queued": 1}
        assert f"1 are queued for workers; start one with: homing study work {study.path}" in said
    assert running.run(study, {}, shared, said.append, going_on=True) == 0
    assert "1 programs are open" in said[-1]


# Folders.


def test_a_study_is_found_by_its_whole_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lr", "lr_long", "lr-sweep"):
        (tmp_path / f"{name}.toml").write_text(TEXT)
    running.opened("lr_long.toml", Choice(), None)
    running.opened("lr-sweep.toml", Choice(), None)
    with pytest.raises(ConfigError, match="has not been run here"):
        running.found("lr.toml")
    running.opened("lr.toml", Choice(), None)
    assert running.found("lr.toml").path == tmp_path / "studies" / "lr"
    (tmp_path / "studies" / "lr_long" / "study.json").write_text("{")
    assert running.found("lr.toml").path == tmp_path / "studies" / "lr"
    running.opened("lr.toml", Choice(scale=0.5), None)
    with pytest.raises(ConfigError, match="more than once"):
        running.found("lr.toml")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--only", "energy=foo"], "unknown value of energy"),
        (["--only", "energy"], "AXIS=LABEL"),
        (["--cluster", "array_parallelism=abc"], "array_parallelism is 'abc'"),
        (["--cluster", "array_parallelism=2.5"], "array_parallelism is 2.5"),
        (["--executor", "submitit-local", "--cluster", "timeout_min=abc"], "timeout_min is 'abc'"),
        (["--executor", "submitit-local", "--no-wait"], "has to wait"),
    ],
)
def test_a_refused_run_leaves_no_folder(tmp_path, capsys, more, words):
    (tmp_path / "tiny.toml").write_text(TEXT)
    with pytest.raises(SystemExit) as ended:
        main.main(["study", "run", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "out"), *more])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and words in told and "unexpected" not in told
    assert not (tmp_path / "out").exists()


# Tables.

HEAD = "study,scale,run,seed,step,{}eval/success_any\n"


@pytest.mark.parametrize(
    ("command", "table", "words"),
    [
        ("merge", HEAD.format("") + "x,1,a,0,10,0.5\n", "without an iteration"),
        ("report", HEAD.format("iteration,") + "x,half,a,0,10,1,0.5\n", "its scale is 'half'"),
        ("report", None, "table.csv does not exist"),
    ],
)
def test_a_table_that_cannot_be_used_is_told_in_one_line(tmp_path, capsys, command, table, words):
    path = tmp_path / "table.csv"
    if table is not None:
        path.write_text(table)
    out = ["--out", str(tmp_path / "all.csv")] if command == "merge" else []
    with pytest.raises(SystemExit) as ended:
        main.main(["study", command, str(path), *out])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and words in told and "unexpected" not in told


def test_commands_in_messages_can_be_copied_where_the_folder_has_a_space(tmp_path, monkeypatch):
    (tmp_path / "tiny.toml").write_text(TEXT)
    folder = running.opened(str(tmp_path / "tiny.toml"), Choice(seeds=1), tmp_path / "my study")
    told = []
    trained(monkeypatch, 100)
    assert running.run(folder, L2, where(), told.append) == 0
    commands = [
        *(line.partition("with: ")[2] for line in told if "with: " in line),
        folder.work,
        folder.go_on,
    ]
    assert len(commands) > 2
    for command in commands:
        assert shlex.split(command)[3:] == [str(folder.path)], command
