"""Workers that share a folder: one claim a program, and a dead worker's programs go to another."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from run_helpers import no_key_check, patch_envs, probe_envs  # noqa: F401
from study_helpers import TESTS, TEXT, own_ledger  # noqa: F401

from homing.errors import ConfigError
from homing.studies import claims, pool, running, shared
from homing.studies.folder import StudyFolder
from homing.studies.points import Choice

# Claims.


def dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def altered(claim: claims.Claim, **facts) -> None:
    """As another process, or another machine, would have written it."""
    told = json.loads(claim.path.read_text()) | facts
    claim.path.write_text(json.dumps(told))


def age(claim: claims.Claim, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(claim.path, (then, then))


def test_a_program_has_one_claim_until_it_is_released(tmp_path):
    first = claims.take(tmp_path)
    assert first is not None and claims.is_claimed(tmp_path) and claims.take(tmp_path) is None
    assert (first.host, first.process) == (os.uname().nodename, os.getpid())
    first.release()
    assert not claims.is_claimed(tmp_path)
    again = claims.take(tmp_path)
    assert again is not None and again.number == 2


def test_of_many_that_ask_at_once_one_gets_it(tmp_path):
    start = threading.Barrier(16)

    def ask(_):
        start.wait()
        return claims.take(tmp_path)

    with ThreadPoolExecutor(16) as threads:
        got = [claim for claim in threads.map(ask, range(16)) if claim is not None]
    assert len(got) == 1 and got[0].is_valid()


def test_a_process_that_is_gone_from_this_machine_loses_its_claim_at_once(tmp_path):
    altered(claims.take(tmp_path), process=dead_process())
    assert not claims.is_claimed(tmp_path)
    assert claims.take(tmp_path).number == 2


def test_a_process_of_another_machine_is_given_time(tmp_path):
    claim = claims.take(tmp_path, dead_after=60)
    altered(claim, process=dead_process(), machine="another")
    age(claim, 50)
    assert claims.is_claimed(tmp_path) and claims.take(tmp_path) is None
    age(claim, 70)
    assert not claims.is_claimed(tmp_path)
    assert claims.take(tmp_path).number == 2


def test_ages_are_by_the_clock_of_the_files(tmp_path, monkeypatch):
    claim = claims.take(tmp_path, dead_after=60)
    altered(claim, machine="another")
    monkeypatch.setattr(time, "time", lambda: 1e12)  # a machine whose clock is wrong
    assert claims.is_claimed(tmp_path)


def test_a_claim_that_is_not_written_yet_counts_for_a_while(tmp_path):
    claim = claims.take(tmp_path)
    claim.path.write_text('{"host": "a')
    assert claims.take(tmp_path) is None
    age(claim, claims.DEAD_AFTER + 10)
    assert claims.take(tmp_path) is not None


def test_a_heartbeat_keeps_a_claim_and_its_end_releases_it(tmp_path):
    claim = claims.take(tmp_path, dead_after=0.6)
    altered(claim, machine="another")
    with claim.beating(lost=lambda: pytest.fail("it was not taken over")):
        for _ in range(10):
            time.sleep(0.15)
            assert claims.is_claimed(tmp_path)
    assert not claims.is_claimed(tmp_path)


def test_an_owner_that_was_paused_learns_that_its_program_is_taken(tmp_path):
    claim, lost = claims.take(tmp_path, dead_after=0.6), threading.Event()
    (claim.path.parent / "000002").write_text(claim.path.read_text())  # the next claim
    with claim.beating(lost.set):
        assert lost.wait(5)
    assert claims.current(tmp_path).number == 2


# What a worker tries.


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A study whose programs are open, planned once for all tests."""
    home = tmp_path_factory.mktemp("study")
    (home / "tiny.toml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch_envs(patch)
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        folder = running.opened(str(home / "tiny.toml"), Choice(), home / "out")
        said = []
        assert running.run(folder, {}, running.Where("workers", cpu=True, wait=False), said.append) == 0
    assert f"homing study work {folder.path}" in "\n".join(said)
    return folder.path


@pytest.fixture
def study(planned, tmp_path, probe_envs):  # noqa: F811
    return StudyFolder(shutil.copytree(planned, tmp_path / "out"))


def test_programs_are_open_and_planned_once(study):
    assert running.status(study)["counts"] == {"queued": 2}
    before = [program.id for program in study.programs()]
    assert running.run(study, {}, running.Where("workers", cpu=True, wait=False), print, going_on=True) == 0
    assert [program.id for program in study.programs()] == before


def test_a_worker_tries_what_is_open_and_waits_for_the_others(study, monkeypatch):
    monkeypatch.setattr(shared, "POLL_SECONDS", 0.0)
    first, second = study.programs()
    worker = shared.Worker(study, print, wait=True, dead_after=60)
    claim = claims.take(first.path)
    assert {worker._next().id for _ in range(5)} == {second.id}
    assert running.status(study)["counts"] == {"queued": 1, "running": 1}
    second.write_state("failed", error="no")
    assert worker._next() is None and worker.left  # the other may still die
    claim.release()
    assert worker._next().id == first.id
    first.write_state("failed", error="no")
    assert worker._next() is None and not worker.left


def test_a_worker_that_does_not_wait_leaves_the_rest_to_the_others(study, monkeypatch):
    monkeypatch.setattr(shared, "POLL_SECONDS", 0.0)
    for program in study.programs():
        claims.take(program.path)
    worker = shared.Worker(study, print, wait=False, dead_after=60)
    assert worker._next() is None and not worker.left


def test_a_program_that_kills_every_process_fails_in_the_end(study, monkeypatch):
    monkeypatch.setattr(shared, "POLL_SECONDS", 0.0)
    first, second = study.programs()
    first.write_state("running", attempts=shared.MAX_ATTEMPTS)
    second.write_state("running", attempts=1)
    worker = shared.Worker(study, print, wait=True, dead_after=60)
    assert {worker._next().id for _ in range(8)} == {second.id}
    assert study.status(first) == "failed" and "processes died" in first.state()["error"]


def test_the_death_of_a_process_is_not_told_of_a_program_that_another_has(study):
    program = study.programs()[0]
    program.write_state("running", attempts=1)
    claims.take(program.path)
    pool.note_death(program, -signal.SIGKILL)
    assert program.state()["status"] == "running"


def test_a_study_that_is_not_planned_says_how(tmp_path, probe_envs):  # noqa: F811
    (tmp_path / "tiny.toml").write_text(TEXT)
    folder = running.opened(str(tmp_path / "tiny.toml"), Choice(), tmp_path / "out")
    with pytest.raises(ConfigError, match="--executor workers"):
        shared.work(folder.path, print, cpu=True)


# Workers as processes.


@pytest.fixture
def start(study):
    """Start a worker; all of them and what they started are gone at the end."""
    started = []
    env = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}", "JAX_PLATFORMS": "cpu"}
    env["JAX_COMPILATION_CACHE_DIR"] = str(TESTS.parent / ".cache" / "jax")

    def worker(*more: str, **fault: str) -> subprocess.Popen:
        command = [sys.executable, str(TESTS / "probe_cli.py"), "study", "work", str(study.path), *more]
        process = subprocess.Popen(command, env=env | fault, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        started.append(process)
        return process

    yield worker
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def sessions(study: StudyFolder) -> dict[str, int]:
    return {run.path.name: len(run.sessions()) for run in study.runs()}


@pytest.mark.slow
def test_two_workers_train_every_program_once(study, start):
    codes = [process.wait(400) for process in (start("--cpu"), start("--cpu"))]
    assert codes == [0, 0] and running.status(study)["counts"] == {"finished": 2}
    assert set(sessions(study).values()) == {1}
    for program in study.programs():
        assert program.state()["attempts"] == 1
        assert len([p for p in (program.path / "claims").iterdir() if p.name.endswith(".released")]) >= 1


def has_checkpoint(program) -> bool:
    """Whether a whole checkpoint of a later iteration is on disk."""
    return any(path.name.isdigit() and int(path.name) > 0 for path in program.path.glob("checkpoints/*"))


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False], ids=["with its process", "alone"])
def test_the_program_of_a_killed_worker_is_taken_over_from_its_checkpoint(tmp_path, start, study, whole):
    """Killed by SIGKILL: the worker alone, or with the process that trains."""
    program, second = study.programs()
    shutil.rmtree(second.path)  # one is enough
    # The process that trains waits in the middle of its work until it is asked to stop.
    victim = start("--cpu", FAULT=f"pause:{3 * len(program.runs)}")
    deadline = time.monotonic() + 400
    while not has_checkpoint(program):
        assert time.monotonic() < deadline, program.log.read_text()
        time.sleep(0.1)
    trainer = claims.current(program.path).process
    other = start("--cpu")
    victim.kill()
    if whole:
        os.kill(trainer, signal.SIGKILL)
    assert other.wait(450) == 0, other.stdout.read()
    assert running.status(study)["counts"] == {"finished": 1}
    assert program.state()["attempts"] == 2
    run = study.run(program.runs[0])
    assert len(run.sessions()) == 2 and run.sessions()[1]["iteration"] > 0
    steps = [row["step"] for row in run.rows() if row["seed"] == run.rows()[0]["seed"]]
    assert steps == sorted(set(steps)), "no evaluation is written twice"
