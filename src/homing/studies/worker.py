"""Training one program of a study, in this process."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import traceback
from pathlib import Path

from homing.errors import HomingError
from homing.runs.folder import RunFolder
from homing.runs.progress import Lines, Progress
from homing.studies import speeds
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.training.run import Outcome

ERROR_LINES = 12


def work(study: StudyFolder, id: str, show: Progress | None = None) -> Outcome:
    """Train a program's runs from their last checkpoint, and record the outcome."""
    program = study.program(id)
    with RunFolder(program.path).held():
        if study.finished(program):
            return Outcome(program.path, "finished")
        where = {"process": os.getpid(), "host": socket.gethostname(), **_job()}
        attempts = program.state().get("attempts", 0) + 1
        program.write_state("running", attempts=attempts, since=time.time(), **where)
        try:
            outcome = _train(study, program, show or Lines())
        except KeyboardInterrupt:
            program.write_state("stopped", attempts=attempts, **where)
            raise
        except BaseException as error:  # any error: the study continues and reports it
            program.write_state("failed", attempts=attempts, error=error_text(error), **where)
            raise
        program.write_state(outcome.status, attempts=attempts, **where)
        if outcome.status == "finished":
            speeds.note(study, program)
            program.forget_checkpoints()
        return outcome


def _job() -> dict[str, str]:
    """The Slurm job id of this process, as in squeue."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    job = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")
    return {"job": job} if job else {}


def _train(study: StudyFolder, program: ProgramFolder, show: Progress) -> Outcome:
    from homing.training import runner

    runs = [(study.run(name), study.config(name)) for name in program.runs]
    return runner.start_or_resume(runs, program.path, show, go_on=study.go_on)


def error_text(error: BaseException) -> str:
    """The message of a `HomingError`, or the end of the traceback of other errors."""
    if isinstance(error, HomingError):
        return str(error)
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return "\n".join(lines[-ERROR_LINES:])


def work_here(study: str | Path, id: str) -> int:
    """`homing study work`, the entry point of the pool's worker processes; returns the exit code."""
    from homing.training.device import choose_device

    stop_with_parent()
    choose_device()
    try:
        outcome = work(StudyFolder.existing(study), id)
    except HomingError as error:
        print(f"homing: {error}", flush=True)
        return 2
    except Exception:
        traceback.print_exc()
        return 1
    return 128 + outcome.signum if outcome.signum else 0


def stop_with_parent() -> None:
    """Terminate this process when its parent process is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
