"""The command line with a probe for every environment; FAULT says when this process shall die or fail.

With TRACES it keeps traced programs, as `homing` does.
"""

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from probes import walk

from homing.cli import main
from homing.compile import export_cache
from homing.config import run as run_settings
from homing.runs import checkpoints, folder
from homing.studies import pool
from homing.training import build as run_build


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_the_middle_of_line(count: int) -> None:
    """While the rows of an evaluation are written: half of them are on the disk."""
    write, calls = folder._write_all, []

    def half(file, content):
        calls.append(1)
        write(file, content[: len(content) // 2] if len(calls) == count else content)
        if len(calls) == count:
            die()

    folder._write_all = half


def die_after_rows(count: int) -> None:
    """When rows are on the disk and their checkpoint is not."""
    append, calls = folder.RunFolder.append, []

    def after(self, rows):
        append(self, rows)
        calls.append(1)
        if len(calls) == count:
            die()

    folder.RunFolder.append = after


def die_in_checkpoint(count: int) -> None:
    """As soon as files of a checkpoint appear under their provisional name."""
    save, calls = checkpoints.Checkpoints.save, []

    def watch(folder: Path, iteration: int) -> None:
        while not list(folder.glob(f"{iteration}.orbax-checkpoint-tmp/*")):
            time.sleep(0)
        die()

    def watched(self, iteration, *args):
        calls.append(1)
        if len(calls) == count:
            threading.Thread(target=watch, args=(self.path, iteration), daemon=True).start()
        save(self, iteration, *args)

    checkpoints.Checkpoints.save = watched


def fill_disk(count: int) -> None:
    """From the checkpoint on, no file can grow beyond a little."""
    save, calls = checkpoints.Checkpoints.save, []

    def full(self, *args):
        calls.append(1)
        if len(calls) == count:
            self.wait()
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        save(self, *args)

    checkpoints.Checkpoints.save = full


def wait_after_rows(count: int, goes_on: Callable[[], bool]) -> None:
    append, calls = folder.RunFolder.append, []

    def after(self, rows):
        append(self, rows)
        calls.append(1)
        while len(calls) == count and not goes_on():
            time.sleep(0.1)

    folder.RunFolder.append = after


def pause_after_rows(count: int) -> None:
    """When rows are on the disk: until the run is asked to stop."""
    wait_after_rows(count, lambda: signal.getsignal(signal.SIGTERM).__self__.signum is not None)


FAULTS = {
    "pause": pause_after_rows,
    "line": die_in_the_middle_of_line,
    "rows": die_after_rows,
    "checkpoint": die_in_checkpoint,
    "disk": fill_disk,
}

if __name__ == "__main__":
    run_settings.resolve = lambda id: id
    run_build.make = lambda id, num_envs=1, **_: walk(num_envs)
    pool.worker_command = lambda study, id: [sys.executable, __file__, "study", "work", str(study), id]
    if fault := os.environ.get("FAULT"):
        name, count = fault.split(":")
        FAULTS[name](int(count))
    if os.environ.get("TRACES"):
        export_cache.turn_on()
    main.main()
