"""Jobs of a cluster: by submitit's local executor always, on a real Slurm of one node where there is one."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from run_helpers import no_key_check, probe_envs  # noqa: F401
from study_helpers import TESTS, TEXT, ProbeTask

from homing.errors import ConfigError
from homing.studies import cluster, running
from homing.studies.points import Choice

pytestmark = pytest.mark.usefixtures("probe_envs", "jobs")
NODE = TESTS.parent / "tools" / "slurm_node.sh"
BROKEN = TEXT + '[[where]]\nwhen = { energy = "dot" }\nalpha_lr = 10\nentropy_target = 50\n'


@pytest.fixture
def jobs(monkeypatch, tmp_path):
    """Jobs find the probes, and compile what tests have compiled."""
    monkeypatch.setattr(cluster, "Task", ProbeTask)
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(TESTS.parent / ".cache" / "jax"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def opened(tmp_path, text=TEXT, **changes):
    (tmp_path / "tiny.toml").write_text(text)
    return running.opened(str(tmp_path / "tiny.toml"), Choice(changes=changes), tmp_path / "out")


def steps(folder, name):
    return [(row["seed"], row["step"]) for row in folder.run(name).rows()]


WHOLE = [(seed, step) for step in (0, 560, 1040, 1440, 1920) for seed in (0, 1)]


def test_submitit_trains_and_gathers_failures(tmp_path):
    """Two jobs, one of them failing, one at a time."""
    folder = opened(tmp_path, BROKEN)
    where = running.Where("submitit-local", workers=1, cpu=True, cluster={"timeout_min": 10})
    said = []
    assert running.run(folder, {}, where, said.append) == 1
    told = {program["id"].partition("-")[0]: program for program in running.status(folder)["programs"]}
    assert told["l2"]["status"] == "finished"
    assert told["dot"]["status"] == "failed" and "every seed has diverged" in told["dot"]["error"]
    assert steps(folder, "l2-critic_lr_0.003") == WHOLE
    logs = [program.log.read_text() for program in folder.programs()]
    assert sum("1.92k of 1.92k steps" in log for log in logs) == 1


@pytest.mark.slow
def test_a_job_asked_to_make_room_saves_goes_back_to_the_queue_and_goes_on(tmp_path):
    folder = opened(tmp_path, total_steps=300_000, evaluations=50)
    where = running.Where("submitit-local", workers=1, cpu=True, cluster={"timeout_min": 10})
    _, (program, *_) = running.prepare(
        folder, running.chosen_points(folder, {"energy": ["l2"]}), where, print
    )
    executor = cluster.make_executor("submitit-local", folder.path / "cluster", {"timeout_min": 10})
    executor.submit(cluster.Task(str(folder.path), program.id, True))
    wait_for(lambda: folder.run(program.runs[0]).rows(), 120)
    os.kill(program.state()["process"], signal.SIGUSR2)
    wait_for(lambda: folder.finished(program), 180)
    sessions = folder.run(program.runs[0]).sessions()
    assert len(sessions) == 2 and sessions[1]["iteration"] > 0
    found = steps(folder, program.runs[0])
    assert len(found) == len(set(found)) == 2 * (50 + 1)  # of two seeds, and before the first iteration


@pytest.mark.parametrize(
    ("options", "words"),
    [({"timeout_mins": 3}, "timeout_mins|srun"), ({"array_parallelism": 0}, "at least 1")],
)
def test_a_wrong_option_is_told_before_anything_is_submitted(tmp_path, options, words):
    folder = opened(tmp_path)
    with pytest.raises(ConfigError, match=words):
        cluster.run(folder, [], running.Where("slurm", cluster=options), print)


def wait_for(fact, seconds):
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.3)


def squeue(job):
    asked = subprocess.run(
        ["squeue", "--noheader", f"--jobs={job}"], capture_output=True, text=True, timeout=60
    )
    return asked.stdout


# Slurm itself.


@pytest.fixture(scope="module")
def slurm():
    """A Slurm that answers: the machine's own, or one of one node that is started for the tests."""
    if shutil.which("sinfo") is None:
        pytest.skip("no Slurm: sudo tools/slurm_node.sh install")
    if subprocess.run(["sinfo"], capture_output=True, timeout=60).returncode == 0:
        yield
        return
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("Slurm does not answer, and only root can start one: sudo tools/slurm_node.sh start")
    subprocess.run([str(NODE), "start"], check=True, timeout=120, capture_output=True)
    yield
    subprocess.run([str(NODE), "stop"], check=True, timeout=60, capture_output=True)


def on_slurm(**options):
    options = {"timeout_min": 10, "array_parallelism": 2, "cpus_per_task": 1, **options}
    return running.Where("slurm", cpu=True, cluster=options)


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_slurm_runs_an_array_and_its_failure_comes_back(tmp_path):
    folder = opened(tmp_path, BROKEN)
    assert running.run(folder, {}, on_slurm(), print) == 1
    told = {program["id"].partition("-")[0]: program for program in running.status(folder)["programs"]}
    assert told["l2"]["status"] == "finished" and "_" in told["l2"]["job"]
    assert told["dot"]["status"] == "failed" and "every seed has diverged" in told["dot"]["error"]
    assert steps(folder, "l2-critic_lr_0.001") == WHOLE


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    "disturb",
    [["scontrol", "requeue"], ["scancel", "--signal=USR2"]],
    ids=["killed and requeued", "asked to stop"],
)
def test_a_slurm_job_ended_in_the_middle_goes_on_from_its_checkpoint(tmp_path, disturb):
    folder = opened(tmp_path, total_steps=100_000)
    no_wait = running.Where("slurm", cpu=True, cluster={"timeout_min": 10}, wait=False)
    assert running.run(folder, {"energy": ["l2"]}, no_wait, print) == 0
    (program,) = folder.programs()
    checkpoints = program.path / "checkpoints"
    wait_for(lambda: checkpoints.is_dir() and any(p.name.isdecimal() for p in checkpoints.iterdir()), 180)
    job = program.state()["job"]
    subprocess.run([*disturb, job], check=True, timeout=60)
    # Slurm lets a requeued job wait for two minutes; here it need not.
    hurry = ["scontrol", "update", f"jobid={job}", "starttime=now"]
    wait_for(lambda: "BeginTime" in squeue(job), 120)
    subprocess.run(hurry, check=True, timeout=60)
    wait_for(lambda: folder.finished(program), 300)
    sessions = folder.run(program.runs[0]).sessions()
    assert len(sessions) == 2 and sessions[1]["iteration"] > 0
    found = steps(folder, program.runs[0])
    assert len(found) == len(set(found)) == 8


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_a_slurm_job_that_goes_away_without_a_word_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setitem(cluster.PATIENCE_SECONDS, "slurm", 3.0)
    folder = opened(tmp_path, total_steps=10_000_000, evaluations=1_000)

    def cancel():
        wait_for(lambda: any(run.rows() for run in folder.runs()), 180)
        subprocess.run(
            ["scancel", "--full", "--signal=KILL", folder.programs()[0].state()["job"]], check=True
        )

    import threading

    threading.Thread(target=cancel, daemon=True).start()
    assert running.run(folder, {"energy": ["l2"]}, on_slurm(), print) == 1
    assert "ended while it was" in folder.programs()[0].state()["error"]
