"""A run's folder: its settings, what it ran on and its metrics; one process at a time writes to it."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
import json
import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from homing.config.run import RunConfig, from_json, to_json
from homing.errors import ConfigError, HomingError, MissingModuleError
from homing.runs.strict_json import RESTORE, read_json
from homing.runs.validation import Row, read_rows, read_sessions, read_summary

CONFIG, METRICS, SESSIONS, SUMMARY, LOCK, TOGETHER = (
    "config.json",
    "metrics.jsonl",
    "sessions.json",
    "summary.json",
    "lock",
    "together.json",
)


MAKES = "`homing train` makes a run's folder and names it"
SHOWN = 3  # runs that a message names


class WriteError(HomingError):
    """A file could not be written; what was there before is unchanged."""


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a whole file or leave the old one."""
    write_with(path, lambda file: file.write(content.encode() if isinstance(content, str) else content))


def write_with(path: Path, write: Callable[[BinaryIO], object], parents: bool = False, fix: str = "") -> None:
    """Write a whole file by a function or leave the old one.

    parents: make the folder too
    fix:     ends the message of an error
    """
    draft = path.with_name(path.name + ".part")
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException as error:  # also an interrupt
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            raise WriteError(f"cannot write {path}: {error.strerror}{fix}") from error
        raise


def write_json(path: Path, content: Any) -> None:
    write_whole(path, json.dumps(content, indent=1) + "\n")


def default_folder(env: str, agent: str) -> Path:
    """runs/<env>-<agent>-<time>, and a number behind it where two start within a second."""
    stem = f"{env}-{agent}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, 1000))
    return next(path for name in names if not (path := Path("runs") / name).exists())


def _runs_below(path: Path) -> str:
    """A few of the runs in a folder of runs, or of a study, the newest first; empty where there are none."""
    configs = [*path.glob(f"*/{CONFIG}"), *path.glob(f"runs/*/{CONFIG}")]
    runs = [
        str(config.parent) for config in sorted(configs, key=lambda file: file.stat().st_mtime, reverse=True)
    ]
    return ", ".join(runs[:SHOWN]) + (f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else "")


class RunFolder:
    """Reading needs no lock; `held` takes it for writing."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of a run that was started before."""
        folder = cls(path)
        if not (folder.path / CONFIG).is_file():
            if (folder.path / "checkpoints").is_dir():
                raise ConfigError(
                    f"{path} has lost its config.json; put it back from a copy. Its content is also in the notes "
                    f"of each checkpoint, under `folders`: {folder.path}/checkpoints/*/notes/metadata"
                )
            what = "holds no run (no config.json)" if folder.path.is_dir() else "does not exist"
            fix = "name a run in it: " + below if (below := _runs_below(Path(path))) else MAKES
            raise ConfigError(f"{path} {what}; {fix}")
        return folder

    def check_new(self) -> None:
        """Refuse a folder that holds something."""
        if (self.path / CONFIG).exists():
            raise ConfigError(
                f"{self.path} holds a run already; continue it with `homing resume {shlex.quote(str(self.path))}` "
                "or choose another --out"
            )
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; --out names a folder")
        if self.path.is_dir() and any(entry.name != LOCK for entry in self.path.iterdir()):
            raise ConfigError(f"{self.path} is not empty; choose a new folder with --out")

    def check_alone(self) -> None:
        """Refuse a run whose checkpoints are those of a population: it goes on with the others."""
        if (self.path / TOGETHER).exists():
            content = read_json(self.path / TOGETHER)
            command = content.get("go_on") if isinstance(content, dict) else None
            raise ConfigError(
                f"{self.path} is trained together with other runs of a study; "
                f"continue with: {command if isinstance(command, str) else 'homing study run'}"
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[RunFolder]:
        """The folder for this process alone; the lock dies with the process, however that ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise HomingError(
                f"cannot write to {self.path}: {error.strerror}; choose another --out"
            ) from error
        try:
            _seize(lock, self.path)
            yield self
        finally:
            os.close(lock)

    # Settings, and what the run ran on.

    def write_config(self, config: RunConfig) -> None:
        write_json(self.path / CONFIG, to_json(config))

    def config(self) -> RunConfig:
        path = self.path / CONFIG
        content = read_json(path)
        try:
            return from_json(content)
        except MissingModuleError:
            raise  # the file is as it should be
        except HomingError as error:
            raise ConfigError(f"cannot use {path}: {error}; {RESTORE}") from error

    def sessions(self) -> list[dict[str, Any]]:
        """One entry for each time the run was started or resumed."""
        return read_sessions(self.path / SESSIONS) if (self.path / SESSIONS).exists() else []

    def add_session(self, facts: dict[str, Any]) -> None:
        write_json(self.path / SESSIONS, [*self.sessions(), facts])

    def summary(self) -> dict[str, Any] | None:
        """How the run ended, if it did."""
        return read_summary(self.path / SUMMARY) if (self.path / SUMMARY).exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_json(self.path / SUMMARY, summary)

    def remove_summary(self) -> None:
        """The run is no longer finished."""
        (self.path / SUMMARY).unlink(missing_ok=True)

    # Metrics: one line for each seed and evaluation.

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows, all of them or none, and see them on the disk."""
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
        path = self.path / METRICS
        try:
            with open(path, "ab", buffering=0) as file:
                before = file.tell()
                try:
                    _write_all(file.fileno(), text)
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise WriteError(f"cannot write {path}: {error.strerror}") from error

    def rows(self, required: Sequence[str] = ("seed", "iteration")) -> list[Row]:
        """All rows; half a line at the end, left by a process that died, is passed over."""
        return read_rows(self.path / METRICS, required)

    def cut_back(self, iteration: int) -> list[Row]:
        """Remove the rows after an iteration, which will be written again; returns those that stay."""
        rows = [row for row in self.rows() if row["iteration"] <= iteration]
        if (self.path / METRICS).exists():
            write_whole(self.path / METRICS, "".join(json.dumps(row) + "\n" for row in rows))
        return rows

    def keep_metrics(self) -> Path | None:
        """A copy of the metrics file, under a name of its own, before it is changed; None if there is none."""
        path = self.path / METRICS
        if not path.exists():
            return None
        names = (f"{METRICS}.kept-{n}" for n in itertools.count(1))
        copy = next(there for name in names if not (there := self.path / name).exists())
        write_whole(copy, path.read_bytes())
        return copy


def _seize(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 200).decode(errors="replace").strip() or "another process"
        raise HomingError(f"{path} is in use by {holder}; a run has one writer") from error
    with contextlib.suppress(OSError):  # naming the holder is optional
        os.truncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of a checkout and whether files differ from it; None outside of one."""

    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def session_facts() -> dict[str, Any]:
    """What a run is computed with: hardware, versions, and the code's state in git where it is known."""
    from homing.system import hardware

    states = {"homing": git_state(Path(__file__).parent), "here": git_state(Path.cwd())}
    return {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        **hardware.describe(),
        "git": {name: state for name, state in states.items() if state is not None},
    }
