"""Programs as cluster jobs: Slurm through submitit, or submitit's local jobs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from homing.errors import ConfigError, HomingError, shown
from homing.studies import claims
from homing.studies.folder import ProgramFolder, StudyFolder

if TYPE_CHECKING:
    from homing.studies.running import Where

POLL_SECONDS = {"slurm": 5.0, "submitit-local": 0.3}
PATIENCE_SECONDS = {"slurm": 30.0, "submitit-local": 2.0}  # files of a dead node may appear late
KILL_SECONDS = 300.0  # within which a batch system kills a job after its termination signal
LOG_LINES = 8
# `signal_delay_s` before its time limit, a job is signalled to save a checkpoint.
DEFAULTS: dict[str, Any] = {
    "timeout_min": 240,
    "signal_delay_s": 120,
    "array_parallelism": 8,
    "nodes": 1,
    "tasks_per_node": 1,
}
LOCAL = ("timeout_min", "signal_delay_s", "gpus_per_node", "tasks_per_node")
MAX_TIMEOUTS = 1_000  # requeues of a job that reaches its time limit


class Task:
    """The callable of a job: train a program from its last checkpoint; submitit calls `checkpoint` to requeue."""

    def __init__(self, study: str, id: str, cpu: bool = False):
        self.study, self.id, self.cpu = study, id, cpu

    @property
    def program(self) -> ProgramFolder:
        """The folder of the task's program."""
        return StudyFolder(self.study).program(self.id)

    def __call__(self) -> str:
        from homing.studies.worker import work
        from homing.training.device import choose_device

        with self._logged():
            choose_device(self.cpu)
            outcome = work(StudyFolder.existing(self.study), self.id)
        if outcome.signum in (signal.SIGUSR1, signal.SIGUSR2):
            # The state is saved; submitit's handler, which is restored by now, requeues the job.
            signal.raise_signal(signal.SIGUSR2)
        elif outcome.signum is not None:
            # Cancelled or pre-empted: the batch system will kill the job in both cases.
            time.sleep(KILL_SECONDS)
            raise HomingError(f"stopped by signal {outcome.signum}")
        return outcome.status

    def checkpoint(self) -> Any:
        """Resubmit the same task; its progress is in the program's checkpoint."""
        from submitit.helpers import DelayedSubmission

        state = {k: v for k, v in self.program.state().items() if k != "status"}
        self.program.write_state("queued", **state | _controller(os.getppid()))
        return DelayedSubmission(Task(self.study, self.id, self.cpu))

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Redirect all output of the process, including native code, to the program's log."""
        sys.stdout.flush()
        sys.stderr.flush()
        saved = [os.dup(1), os.dup(2)]
        with open(self.program.log, "ab", buffering=0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for old, descriptor in zip(saved, (1, 2), strict=True):
                os.dup2(old, descriptor)
                os.close(old)


def make_executor(kind: str, folder: Path, options: Mapping[str, Any]) -> Any:
    """A submitit executor with our defaults; wrong options raise before anything is submitted."""
    try:
        import submitit
    except ImportError:
        raise ConfigError('submitit is not installed: pip install "homing[slurm]"') from None
    wanted = {**DEFAULTS, **options}
    try:
        if kind == "slurm":
            executor = submitit.SlurmExecutor(folder, max_num_timeout=MAX_TIMEOUTS)
            extra = {"requeue": True, **wanted.pop("additional_parameters", {})}
            executor.update_parameters(**executor._convert_parameters(wanted), additional_parameters=extra)
        else:
            executor = submitit.LocalExecutor(folder, max_num_timeout=MAX_TIMEOUTS)
            executor.update_parameters(**{k: v for k, v in wanted.items() if k in LOCAL})
    except (ValueError, RuntimeError, TypeError, NameError) as error:
        raise ConfigError(f"{kind}: {error}") from None
    return executor


def check_options(executor: str, options: Mapping[str, Any], wait: bool) -> None:
    """Refuse options of a cluster that cannot work, before anything is written."""
    limit = options.get("array_parallelism", 1)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ConfigError(
            f"array_parallelism is {shown(limit)}; it must be at least 1, a whole number such as 8"
        )
    if executor != "submitit-local":
        return
    if not wait:
        raise ConfigError("submitit-local jobs end with this process, so it has to wait for them")
    for name in LOCAL:
        if not isinstance(options.get(name, 1), (int, float)):
            raise ConfigError(f"{name} is {shown(options[name])}; it must be a number")


def run(
    folder: StudyFolder, programs: Sequence[ProgramFolder], where: Where, say: Callable[[str], None]
) -> int:
    """Submit programs and wait for them if `where.wait`; returns the signal that ended the wait, or 0."""
    options = dict(where.cluster)
    limit = options.setdefault("array_parallelism", where.workers or DEFAULTS["array_parallelism"])
    executor = make_executor(where.executor, folder.path / "cluster", options)
    if where.executor == "slurm":
        jobs: SlurmJobs | LocalJobs = SlurmJobs(executor, where.cpu)
    else:
        jobs = LocalJobs(executor, limit, where.cpu)
    jobs.submit(folder, programs, say)
    if not where.wait:
        say(f"jobs are queued; check them with: {folder.command('status')}")
        return 0
    return _wait(folder, programs, jobs, where.executor, say)


class SlurmJobs:
    """Jobs of a Slurm array, monitored with squeue, which works without Slurm's accounting."""

    def __init__(self, executor: Any, cpu: bool):
        self.executor, self.cpu = executor, cpu
        self.jobs: dict[str, str] = {}

    def submit(
        self, folder: StudyFolder, programs: Sequence[ProgramFolder], say: Callable[[str], None]
    ) -> None:
        """Submit all programs as one job array."""
        with self.executor.batch():
            jobs = [
                self.executor.submit(Task(str(folder.path), program.id, self.cpu)) for program in programs
            ]
        for program, job in zip(programs, jobs, strict=True):
            self.jobs[program.id] = job.job_id
            program.write_state("queued", job=job.job_id, attempts=program.state().get("attempts", 0))
        say(f"submitted {len(jobs)} jobs: {', '.join(sorted({j.job_id.split('_')[0] for j in jobs}))}")

    def alive(self) -> set[str]:
        """Ids of programs whose job is pending or running."""
        live = queue(self.jobs.values())
        return {id for id, job in self.jobs.items() if job in live}

    def step(self) -> None:
        """Slurm itself enforces the limit on parallel jobs."""


def has_squeue() -> bool:
    """Whether this machine can ask Slurm for its queue."""
    return shutil.which("squeue") is not None


def queue(jobs: Iterable[str]) -> set[str]:
    """The subset of jobs that are pending or running; all of them if squeue does not answer."""
    jobs = list(jobs)
    arrays = ",".join(sorted({job.split("_")[0] for job in jobs}))
    command = ["squeue", "--noheader", "--array", "--format=%i %A %T", f"--jobs={arrays}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return set(jobs)
    if answer.returncode and "Invalid job id" not in answer.stderr:
        return set(jobs)
    rows = [line.split() for line in answer.stdout.splitlines() if line.strip()]
    ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")
    return {name for row in rows if len(row) == 3 and row[2] not in ended for name in row[:2]}


class LocalJobs:
    """submitit's local jobs, of which at most `limit` are submitted at a time, since each starts immediately."""

    def __init__(self, executor: Any, limit: int, cpu: bool):
        self.executor, self.limit, self.cpu = executor, limit, cpu
        self.waiting: list[tuple[StudyFolder, ProgramFolder]] = []
        self.jobs: dict[str, Any] = {}

    def submit(
        self, folder: StudyFolder, programs: Sequence[ProgramFolder], say: Callable[[str], None]
    ) -> None:
        """Submit the first programs; the others keep their state until it is their turn."""
        self.waiting = [(folder, program) for program in programs]
        self.step()

    def step(self) -> None:
        """Submit programs that wait, up to the limit."""
        running = [job for job in self.jobs.values() if not job.done()]
        for folder, program in self.waiting[: max(self.limit - len(running), 0)]:
            job = self.executor.submit(Task(str(folder.path), program.id, self.cpu))
            attempts = program.state().get("attempts", 0)
            program.write_state("queued", attempts=attempts, **_controller(int(job.job_id)))
            self.jobs[program.id] = job
            self.waiting = self.waiting[1:]

    def alive(self) -> set[str]:
        """Ids of programs that wait, are queued or run."""
        waiting = {program.id for _, program in self.waiting}
        return waiting | {id for id, job in self.jobs.items() if not job.done()}


def _controller(process: int) -> dict[str, Any]:
    """The process that starts a local job, and its machine."""
    return {"process": process, "machine": claims.machine()}


def _wait(
    folder: StudyFolder,
    programs: Sequence[ProgramFolder],
    jobs: SlurmJobs | LocalJobs,
    kind: str,
    say: Callable[[str], None],
) -> int:
    """Wait until every program has ended, and report each; Ctrl-C leaves the jobs running."""
    from homing.studies.running import line

    pending = {program.id: program for program in programs}
    gone: dict[str, float] = {}
    try:
        while pending:
            time.sleep(POLL_SECONDS[kind])
            jobs.step()
            alive = jobs.alive()
            for id, program in list(pending.items()):
                gone.setdefault(id, time.monotonic()) if id not in alive else gone.pop(id, None)
                waited = time.monotonic() - gone.get(id, time.monotonic())
                if folder.status(program) == "failed" and id in alive:
                    continue  # its job is about to end
                if _ended(folder, program, id in alive, waited > PATIENCE_SECONDS[kind]):
                    del pending[id]
                    say(line(folder, program))
    except KeyboardInterrupt:
        say("stopped waiting; jobs that are submitted continue")
        return signal.SIGINT
    return 0


def _ended(folder: StudyFolder, program: ProgramFolder, alive: bool, timed_out: bool) -> bool:
    """Whether a program has ended; one whose job disappeared without a final state is marked as failed."""
    status = folder.status(program)
    if status in ("finished", "failed"):
        return True
    if alive or not timed_out:
        return False
    state = program.state()
    tail = program.log.read_text(errors="replace").splitlines()[-LOG_LINES:] if program.log.exists() else []
    error = f"its job {state.get('job', '')} ended while it was {status}; last lines of {program.log}:"
    fields = {key: value for key, value in state.items() if key not in ("status", "error")}
    program.write_state("failed", **fields, error="\n".join([error, *tail]))
    return True
