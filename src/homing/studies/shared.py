"""Workers on any machines that share a study's folder: each trains what no other has claimed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from homing.errors import ConfigError
from homing.studies import claims
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.studies.pool import TAKEN, Pool, local_machine

if TYPE_CHECKING:
    from homing.studies.running import Where

OPEN = ("queued", "stopped", "interrupted")
ENDED = ("finished", "failed")
LOST = 76  # exit code of a worker whose program another has taken over
POLL_SECONDS = 2.0
MAX_ATTEMPTS = 20  # of a program whose processes die without saying why


def open_programs(
    folder: StudyFolder, programs: Sequence[ProgramFolder], where: Where, say: Callable[[str], None]
) -> int:
    """Put programs into the queue that workers take from; returns the signal that ended the wait, or 0."""
    for program in programs:
        program.write_state("queued", attempts=0, queue="workers")
    say(f"{len(programs)} programs are open; start workers, on any machine, with:\n  {folder.work}")
    return _wait(folder, programs, say) if where.wait else 0


def _wait(folder: StudyFolder, programs: Sequence[ProgramFolder], say: Callable[[str], None]) -> int:
    """Report programs as they end; an interrupt leaves the workers alone."""
    from homing.studies.running import line

    left = list(programs)
    try:
        while left:
            time.sleep(POLL_SECONDS)
            for program in [program for program in left if folder.status(program) in ENDED]:
                left.remove(program)
                say(line(folder, program))
    except KeyboardInterrupt:
        say("stopped waiting; the workers continue")
        return signal.SIGINT
    return 0


class Worker:
    """A machine's part of a study: a process for each GPU, or on the CPU, that trains programs nobody else has."""

    def __init__(self, folder: StudyFolder, say: Callable[[str], None], wait: bool, dead_after: float):
        self.folder, self.say, self.wait, self.dead_after = folder, say, wait, dead_after
        self.tried: dict[str, float] = {}
        self.looked, self.left = -POLL_SECONDS, True

    def run(self, slots: Sequence[dict[str, str]]) -> int:
        """Train until nothing is left; returns the exit code."""
        if not self.folder.programs():
            raise ConfigError(
                f"{self.folder.path} has no programs yet; open them with: {self.folder.go_on} --executor workers"
            )
        options = ("--claim", "--dead-after", str(self.dead_after))
        pool = Pool(self.folder, slots, self.say, options)
        signum = pool.serve(self._next, lambda: not self.left, self._ended)
        failed = [program for program in self.folder.programs() if self.folder.status(program) == "failed"]
        if signum:
            self.say(f"stopped; other workers continue. To join them again: {self.folder.work}")
            return 128 + signum
        self.say(f"nothing is left; make the report with: {self.folder.command('report')}")
        return 1 if failed else 0

    def _next(self) -> ProgramFolder | None:
        """A program to try; whether this process gets it, its claim decides."""
        now = time.monotonic()
        if now - self.looked < POLL_SECONDS:
            return None
        self.looked = now
        statuses = {program.id: (program, self.folder.status(program)) for program in self.folder.programs()}
        found = [program for program, status in statuses.values() if status in OPEN]
        self.left = bool(found) or (self.wait and any(s == "running" for _, s in statuses.values()))
        # Workers that start together should not all ask for the same one.
        random.shuffle(found)
        free = [p for p in found if now - self.tried.get(p.id, -1e9) > POLL_SECONDS and not self._gives_up(p)]
        if not free:
            return None
        self.tried[free[0].id], self.looked = now, -POLL_SECONDS
        return free[0]

    def _gives_up(self, program: ProgramFolder) -> bool:
        """Mark a program that kills every process as failed, so that it does not go round all workers."""
        state = program.state()
        if self.folder.status(program) != "interrupted" or state.get("attempts", 0) < MAX_ATTEMPTS:
            return False
        error = f"{MAX_ATTEMPTS} processes died while training it; see {program.log}"
        program.write_state("failed", attempts=state["attempts"], error=error)
        return True

    def _ended(self, program: ProgramFolder, code: int) -> None:
        from homing.studies.running import line

        self.tried[program.id] = time.monotonic()
        if code == LOST:
            self.say(f"lost {program.id}: another worker has taken it over")
        elif code != TAKEN:
            self.say(line(self.folder, program))


def work(
    study: str | Path,
    say: Callable[[str], None],
    *,
    workers: int | None = None,
    cpu: bool = False,
    wait: bool = True,
    dead_after: float = claims.DEAD_AFTER,
) -> int:
    """`homing study work FOLDER`; returns the exit code."""
    folder = StudyFolder.existing(study)
    _, _, slots = local_machine(cpu, workers)
    if not slots:
        raise ConfigError("a worker needs at least one process; give --workers 1 or more")
    return Worker(folder, say, wait, dead_after).run(slots)


def train_claimed(study: str | Path, id: str, dead_after: float) -> int:
    """Train one program if this process gets the claim on it; returns the exit code."""
    from homing.studies.worker import work_here

    folder = StudyFolder.existing(study)
    program = folder.program(id)
    claim = claims.take(program.path, dead_after)
    if claim is None:
        print(f"{id}: another worker has it", flush=True)
        return TAKEN
    # Nothing may be written any more: the checkpoint belongs to another process now.
    with claim.beating(lost=lambda: os._exit(LOST)):
        return work_here(study, id)
