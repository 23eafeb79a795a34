"""Commands side by side, which end together when they are told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from homing.system.hardware import with_memory_fraction

GPU_MEMORY = 0.9  # of the device, for all runs side by side


class Processes:
    """The commands under way; a signal is passed on to each of them once, and no other is started then."""

    def __init__(self) -> None:
        self.running: set[subprocess.Popen[str]] = set()
        self.stopped_by: int | None = None

    def stop(self, signum: int) -> None:
        self.stopped_by = signum
        for process in list(self.running):
            process.send_signal(signum)

    def run(self, command: Sequence[str], **options: Any) -> str:
        if self.stopped_by is not None:
            raise SystemExit("stopped")
        # In a session of its own: a terminal or `timeout` would signal the whole group, and each run twice then.
        process = subprocess.Popen(command, text=True, start_new_session=True, **options)
        self.running.add(process)
        if self.stopped_by is not None:  # just now
            process.send_signal(self.stopped_by)
        output, _ = process.communicate()
        self.running.discard(process)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return output or ""

    def homing(
        self, *arguments: str, read: bool = False, log: Path | None = None, memory: float | None = None
    ) -> str:
        """A command of `homing`.

        read:   return what it prints
        log:    where else its output goes to, instead of to the terminal
        memory: fraction of the GPU's memory, where it shares the device
        """
        # In one piece: others print at the same time.
        print(
            " ".join(["$ homing", *arguments, *([] if log is None else [">", str(log)])]) + "\n",
            end="",
            flush=True,
        )
        command = [sys.executable, "-m", "homing", *arguments]
        shared = {} if memory is None else with_memory_fraction(memory)
        options: dict[str, Any] = {"env": os.environ | shared}
        if log is None:
            return self.run(command, stdout=subprocess.PIPE if read else None, **options)
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "a") as file:
            return self.run(command, stdout=subprocess.PIPE if read else file, stderr=file, **options)


def start_or_resume(
    homing: Callable[..., Any], run: Path, *arguments: str, device: Sequence[str] = (), **place: Any
) -> None:
    """Train a run by `homing train` with these arguments, or go on with it where it was stopped.

    homing: `Processes.homing`, with `place` as its options
    device: flags for the device
    """
    if is_finished(run):
        return
    if (run / "config.json").exists():
        homing("resume", str(run), *device, **place)
    else:
        homing("train", *arguments, "--out", str(run), *device, **place)


def is_finished(run: Path) -> bool:
    """Whether a run has been trained to its end."""
    summary = run / "summary.json"
    return summary.exists() and json.loads(summary.read_text())["status"] == "finished"
