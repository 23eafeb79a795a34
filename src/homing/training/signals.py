"""Being asked to stop: by Ctrl-C, or by a batch system."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

# The last two are what batch systems send some time before they end a job.
NOTED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Stopped(BaseException):
    """Asked to stop before there was anything to save."""

    def __init__(self, signum: int):
        super().__init__(signum)
        self.signum = signum


class StopRequest:
    """While entered, signals to stop are noted in `signum`; a second one does not wait.

    Until `polite` is set there is nothing to save, and the first one raises.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.polite = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for signum in NOTED:
                self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None or not self.polite:
            raise Stopped(signum)
        self.signum = signum
