"""Requests to stop a run: Ctrl-C, or a batch system's signal."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

# The last two are what batch systems send some time before they end a job.
NOTED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Stopped(BaseException):
    """A second request: do not wait for the checkpoint."""

    def __init__(self, signum: int):
        super().__init__(signum)
        self.signum = signum


class StopRequest:
    """From `listen` until it is left, signals are noted in `signum`; a second one raises `Stopped`.

    Before there is something to save, signals do what they do outside of a run.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        return self

    def listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for signum in NOTED:
                self._before[signum] = signal.signal(signum, self._note)

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            raise Stopped(signum)
        self.signum = signum
