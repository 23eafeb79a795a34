"""Commands side by side, which end together when they are told to."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any


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
