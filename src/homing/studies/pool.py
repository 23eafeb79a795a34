"""The local process pool: one worker per GPU, or one on the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError
from homing.studies import claims
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.system import hardware

POLL_SECONDS = 0.2
TAKEN = 75  # exit code of a process whose program another has claimed


def gpus() -> list[dict[str, Any]]:
    """Name, index and bytes of the GPUs that this process may use, from the driver.

    JAX is not used, since it would preallocate the memory that the workers need.
    """
    rows = hardware.ask_driver("index", "name", "memory.total")
    fraction = hardware.memory_fraction()
    found = [
        {"index": row[0], "name": row[1], "bytes": int(float(row[2]) * 2**20 * fraction)}
        for row in rows
        if row[2].replace(".", "").isdigit()
    ]
    wanted = hardware.visible_gpus()
    if wanted is None:
        return found
    return [gpu for gpu in found if gpu["index"] in wanted] if all(w.isdigit() for w in wanted) else found


def local_machine(cpu: bool, workers: int | None) -> tuple[str, int | None, list[dict[str, str]]]:
    """Device name, its free memory, and the environment variables of each worker."""
    if workers is not None and workers < 0:
        raise ConfigError(f"workers is {workers}; 0 trains in this process, 1 or more start worker processes")
    found = [] if cpu or os.environ.get("JAX_PLATFORMS") == "cpu" else gpus()
    if found:
        count = workers or len(found)
        slots = [{"CUDA_VISIBLE_DEVICES": found[i % len(found)]["index"]} for i in range(count)]
        each = -(-count // len(found))  # workers per GPU
        if each > 1:
            shared = hardware.with_memory_fraction(hardware.memory_fraction() / each)
            slots = [slot | shared for slot in slots]
        return found[0]["name"], min(gpu["bytes"] for gpu in found) // each, slots
    from homing.system.doctor import free_bytes

    count = workers or 1
    free = free_bytes()
    return (
        hardware.cpu_name(),
        None if free is None else free // count,
        [{"JAX_PLATFORMS": "cpu"} for _ in range(count)],
    )


class Pool:
    """Worker processes that train programs; on a signal they save a checkpoint and stop."""

    def __init__(
        self,
        study: StudyFolder,
        slots: Sequence[dict[str, str]],
        say: Callable[[str], None],
        options: Sequence[str] = (),
    ):
        self.study, self.say, self.options = study, say, options
        self.free = list(slots)
        self.running: dict[str, tuple[subprocess.Popen[bytes], dict[str, str], ProgramFolder]] = {}
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def run(self, programs: Sequence[ProgramFolder], ended: Callable[[ProgramFolder, int], None]) -> int:
        """Run all programs, one per worker at a time; returns the signal that stopped the pool, or 0."""
        waiting = list(programs)
        return self.serve(lambda: waiting.pop(0) if waiting else None, lambda: not waiting, ended)

    def serve(
        self,
        take: Callable[[], ProgramFolder | None],
        exhausted: Callable[[], bool],
        ended: Callable[[ProgramFolder, int], None],
    ) -> int:
        """Run programs as `take` hands them out, until there are no more; returns as `run` does."""
        with self:
            while (not exhausted() or self.running) and self.signum is None:
                while self.free and (program := take()) is not None:
                    self._start(program)
                time.sleep(POLL_SECONDS)
                self._collect(ended)
            self._stop_all(ended)
        return self.signum or 0

    def _start(self, program: ProgramFolder) -> None:
        slot = self.free.pop(0)
        self.say(f"training {program.id}")
        # In a new session, so that Ctrl-C reaches it only through the pool.
        with open(program.log, "ab") as log:
            process = subprocess.Popen(
                [*worker_command(self.study.path, program.id), *self.options],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **slot},
                start_new_session=True,
            )
        self.running[program.id] = (process, slot, program)

    def _collect(self, ended: Callable[[ProgramFolder, int], None]) -> None:
        for id, (process, slot, program) in list(self.running.items()):
            code = process.poll()
            if code is not None:
                del self.running[id]
                self.free.append(slot)
                note_death(program, code)
                ended(program, code)

    def _stop_all(self, ended: Callable[[ProgramFolder, int], None]) -> None:
        if not self.running:
            return
        self.say(
            f"stopping: {len(self.running)} programs save a checkpoint (signal again to stop immediately)"
        )
        for process, _, _ in self.running.values():
            process.terminate()
        first, self.signum = self.signum, None
        while self.running:
            if self.signum is not None:
                for process, _, _ in self.running.values():
                    process.kill()
            time.sleep(POLL_SECONDS)
            self._collect(ended)
        self.signum = first

    def __enter__(self) -> Pool:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        for process, *_rest in self.running.values():
            process.kill()

    def _note(self, signum: int, _frame: Any) -> None:
        self.signum = signum


def worker_command(study: Path, id: str) -> list[str]:
    """The command line of a worker process."""
    return [sys.executable, "-m", "homing", "study", "work", str(study), id]


def note_death(program: ProgramFolder, code: int) -> None:
    """Record the state of a process that ended without writing one: killed, or out of memory."""
    state = program.state()
    if state["status"] != "running" or program.in_use() or claims.is_claimed(program.path):
        return
    if code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
        program.write_state("stopped", **{k: v for k, v in state.items() if k != "status"})
        return
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    more = "; the machine may have run out of memory" if code == -signal.SIGKILL else ""
    error = f"its process ended with {name}{more}; see {program.log}"
    program.write_state("failed", **{k: v for k, v in state.items() if k != "status"}, error=error)
