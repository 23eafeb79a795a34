"""The local pool: one worker for each GPU, or one on the CPU, each a process of its own."""

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
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.system import hardware

POLL_SECONDS = 0.2
JAX_SHARE = 0.75  # of a GPU's memory, which JAX takes unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise


def gpus() -> list[dict[str, Any]]:
    """Name, index and bytes of the GPUs that this process may use; asked of the driver, not of JAX.

    A process whose JAX has seen a GPU holds most of its memory, and the workers need that.
    """
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    share = float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", JAX_SHARE))
    found = [
        {"index": row[0], "name": row[1], "bytes": int(float(row[2]) * 2**20 * share)}
        for row in rows
        if len(row) == 3 and row[2].replace(".", "").isdigit()
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    wanted = [name.strip() for name in visible.split(",") if name.strip()]
    return [gpu for gpu in found if gpu["index"] in wanted] if all(w.isdigit() for w in wanted) else found


def local_machine(cpu: bool, workers: int | None) -> tuple[str, int | None, list[dict[str, str]]]:
    """Device, its memory, and the environment variables of each worker."""
    if workers is not None and workers < 0:
        raise ConfigError(f"workers is {workers}; 0 trains in this process, 1 or more start others")
    there = [] if cpu or os.environ.get("JAX_PLATFORMS") == "cpu" else gpus()
    if there:
        count = workers or len(there)
        slots = [{"CUDA_VISIBLE_DEVICES": there[i % len(there)]["index"]} for i in range(count)]
        each = -(-count // len(there))  # more workers than GPUs share them
        share = float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", JAX_SHARE)) / each
        if each > 1:
            slots = [slot | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{share:.3f}"} for slot in slots]
        return there[0]["name"], min(gpu["bytes"] for gpu in there) // each, slots
    from homing.system.doctor import free_bytes

    count = workers or 1
    free = free_bytes()
    return (
        hardware.cpu_name(),
        None if free is None else free // count,
        [{"JAX_PLATFORMS": "cpu"} for _ in range(count)],
    )


class Pool:
    """Processes that train programs; leaving it stops those that still run, and waits for their saving."""

    def __init__(self, study: StudyFolder, slots: Sequence[dict[str, str]], say: Callable[[str], None]):
        self.study, self.say = study, say
        self.free = list(slots)
        self.running: dict[str, tuple[subprocess.Popen[bytes], dict[str, str], ProgramFolder]] = {}
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def run(self, programs: Sequence[ProgramFolder], ended: Callable[[ProgramFolder, int], None]) -> int:
        """All of them, as many at once as there are workers; returns the signal that stopped it, or 0."""
        waiting = list(programs)
        with self:
            while (waiting or self.running) and self.signum is None:
                while waiting and self.free:
                    self._start(waiting.pop(0))
                time.sleep(POLL_SECONDS)
                self._collect(ended)
            self._stop_all(ended)
        return self.signum or 0

    def _start(self, program: ProgramFolder) -> None:
        slot = self.free.pop(0)
        self.say(f"training {program.id}")
        # A session of its own, so that Ctrl-C comes to it through us and once.
        with open(program.log, "ab") as log:
            process = subprocess.Popen(
                worker_command(self.study.path, program.id),
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
        self.say(f"stopping: {len(self.running)} programs save where they are (once more: at once)")
        for process, _, _ in self.running.values():
            process.terminate()
        asked, self.signum = self.signum, None
        while self.running:
            if self.signum is not None:
                for process, _, _ in self.running.values():
                    process.kill()
            time.sleep(POLL_SECONDS)
            self._collect(ended)
        self.signum = asked

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
    return [sys.executable, "-m", "homing", "study", "work", str(study), id]


def note_death(program: ProgramFolder, code: int) -> None:
    """A process that could not say why it ended: killed, or out of memory."""
    state = program.state()
    if state["status"] != "running" or program.in_use():
        return
    if code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
        program.write_state("stopped", **{k: v for k, v in state.items() if k != "status"})
        return
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    more = "; the machine may have run out of memory" if code == -signal.SIGKILL else ""
    error = f"its process ended with {name}{more}; see {program.log}"
    program.write_state("failed", **{k: v for k, v in state.items() if k != "status"}, error=error)
