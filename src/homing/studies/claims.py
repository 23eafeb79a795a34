"""Claims on the programs of a study in a folder that machines share, by files alone.

A claim is a numbered file. Creating one is exclusive (`O_EXCL`), so of several processes that want the same number
one gets it; the highest number is the valid claim. Its owner touches it (the heartbeat). A claim that has not been
touched for `dead_after` seconds, or whose process is gone from this machine, is dead, and the next process takes the
next number. An owner that was only paused finds the higher number at its next heartbeat and ends at once.

Ages are differences of times that the file server wrote, so clocks of machines may differ.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER, RELEASED, NOW = "claims", ".released", ".now"
BEATS = 6  # heartbeats within the time after which a claim is dead
DEAD_AFTER = 180.0


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim on a program, held by this process or read from disk."""

    path: Path
    host: str
    process: int
    machine: str
    dead_after: float

    @property
    def number(self) -> int:
        return _number(self.path)

    def is_alive(self) -> bool:
        """Whether its process may still be training."""
        if self.machine == machine() and not exists(self.process):
            return False
        try:
            return _now(self.path.parent) - self.path.stat().st_mtime < self.dead_after
        except FileNotFoundError:  # released just now
            return False

    def is_valid(self) -> bool:
        """Whether no process has taken the program over."""
        return _highest(self.path.parent) == self.number

    def release(self) -> None:
        """Open the program to others; the file stays as a record of who trained it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(self.path.name + RELEASED))

    @contextlib.contextmanager
    def beating(self, lost: Callable[[], None]) -> Iterator[None]:
        """Keep the claim alive from a thread, and release it at the end.

        lost: called from that thread when another process has taken over, or the folder cannot be reached
        """
        done = threading.Event()
        thread = threading.Thread(target=self._beat, args=(done, lost), name="claim", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.release()

    def _beat(self, done: threading.Event, lost: Callable[[], None]) -> None:
        last = time.monotonic()
        while not done.wait(self.dead_after / BEATS):
            try:
                if not self.is_valid():
                    return lost()
                os.utime(self.path)
                last = time.monotonic()
            except OSError:
                if time.monotonic() - last > self.dead_after / 2:
                    return lost()


def take(program: Path, dead_after: float = DEAD_AFTER) -> Claim | None:
    """Claim a program for this process; None if another process has it."""
    folder = program / FOLDER
    folder.mkdir(exist_ok=True)
    # One look decides both: a number above a claim that was not looked at would take it over.
    last = _highest(folder)
    before = _read(folder, last)
    if before is not None and before.is_alive():
        return None
    path = folder / f"{last + 1:06d}"
    facts: dict[str, Any] = {"host": socket.gethostname(), "process": os.getpid(), "machine": machine()}
    facts["dead_after"] = dead_after
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return None
    with os.fdopen(file, "w") as stream:
        json.dump(facts, stream)
        stream.flush()
        os.fsync(stream.fileno())
    claim = Claim(path, **facts)
    if not claim.is_valid():  # a higher number appeared between looking and creating
        claim.release()
        return None
    return claim


def current(program: Path) -> Claim | None:
    """The valid claim on a program; None if it is open."""
    folder = program / FOLDER
    return _read(folder, _highest(folder))


def _read(folder: Path, number: int) -> Claim | None:
    """The claim of a number; None if it was released, or there is none."""
    path = folder / f"{number:06d}"
    try:
        facts = json.loads(path.read_text())
        return Claim(path, **facts)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # created, and not written yet; or its writer died in between
        return Claim(path, "unknown", 0, "", DEAD_AFTER)


def is_claimed(program: Path) -> bool:
    """Whether a process, on this machine or another, has a program."""
    claim = current(program)
    return claim is not None and claim.is_alive()


def machine() -> str:
    """This machine since it started, and the process ids that are seen in it: containers share host names."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return ":".join(parts)


def _highest(folder: Path) -> int:
    """The number of the last claim, released or not; 0 if there was none."""
    if not folder.is_dir():
        return 0
    return max((_number(Path(name)) for name in os.listdir(folder) if name[:1].isdigit()), default=0)


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])


def exists(process: int) -> bool:
    """Whether a process of this machine is alive."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _now(folder: Path) -> float:
    """The time by the clock that dates the files of a folder."""
    probe = folder / f"{NOW}-{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:  # a folder that may only be read
        return time.time()
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
