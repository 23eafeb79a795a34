"""Ctrl-C and SIGTERM on the command line: one line and the signal's exit code, at any moment.

Nothing heavy is imported here: the handlers are in place before the package's own imports, which take seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 1.5
"""How long the main thread may take to unwind; a program that is compiling or running never looks."""


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end."""

    def __init__(self, signum: int):
        super().__init__(signum)
        self.signum = signum


class Interrupts:
    """Handlers of both signals: they end the process at once until `unwinding`, and raise from then on."""

    def __init__(self) -> None:
        self.unwinding = False
        self.done = False
        self.signum: int | None = None

    def install(self) -> None:
        for signum in SIGNALS:
            signal.signal(signum, self.note)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), name="interrupts", daemon=True).start()
        report = sys.unraisablehook

        def unraisable(args: Any) -> None:
            # Raised inside a destructor or a callback, where Python drops exceptions.
            end(args.exc_value.signum) if isinstance(args.exc_value, Interrupted) else report(args)

        sys.unraisablehook = unraisable

    def note(self, signum: int, frame: FrameType | None) -> None:
        if not self.unwinding or self.done or self.signum is not None:
            end(signum)
        self.signum = signum
        raise Interrupted(signum)

    def _watch(self, reader: int) -> None:
        """End the process where the main thread does not: inside of a library, or where an error was dropped."""
        while byte := os.read(reader, 1):
            if not self._is_ours(byte[0]):
                continue
            time.sleep(GRACE_SECONDS if self.unwinding else 0)
            if self._is_ours(byte[0]) and not self.done:
                end(byte[0])

    def _is_ours(self, signum: int) -> bool:
        """A run that saves first, or a pool of workers, has handlers of its own in place."""
        return signum in SIGNALS and signal.getsignal(signum) == self.note


_interrupts: Interrupts | None = None
_ending = threading.Lock()


def install() -> Interrupts:
    """Put the handlers in place, once; for a process that is the command line."""
    global _interrupts
    if _interrupts is None:
        _interrupts = Interrupts()
        _interrupts.install()
    return _interrupts


def received() -> bool:
    """Whether a signal is ending this process: an error may be what a library made of it."""
    return _interrupts is not None and _interrupts.signum is not None


def end(signum: int, line: str = "interrupted") -> NoReturn:
    """Leave at once: at a normal exit Python would first wait for threads that still compile."""
    while not _ending.acquire(blocking=False):
        time.sleep(1)  # another thread has written the line and is about to leave
    if line:
        os.write(2, f"homing: {line}\n".encode())
    leave(128 + signum)


def exit_code(error: KeyboardInterrupt) -> int:
    """128 and the signal's number, as shells have it."""
    return 128 + (error.signum if isinstance(error, Interrupted) else signal.SIGINT)


def leave(code: int) -> NoReturn:
    """End the process with what it has printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or another thread holds it
            stream.flush()
    os._exit(code)


def guarded(command: Callable[[], None]) -> None:
    """Run a command; whatever an interrupt turned into on its way up, it ends with one line."""
    interrupts = install()
    interrupts.unwinding = True
    try:
        command()
        if interrupts.signum is not None:
            # It has ended well; at a normal exit a thread that still computes could abort the process.
            leave(0)
    except SystemExit as stop:
        if interrupts.signum is not None:
            # The command may have said more than this line already: how a run goes on.
            end(interrupts.signum, "" if stop.code == 128 + interrupts.signum else "interrupted")
        if isinstance(stop.code, int) and stop.code > 128:
            leave(stop.code)  # stopped by a handler of its own; threads may still compile
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or interrupts.signum is not None:
            end(interrupts.signum or signal.SIGINT)
        raise
    finally:
        interrupts.done = True
