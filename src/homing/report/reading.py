"""Runs as they are on the disk, broken, unfinished and running ones included; each is read in isolation."""

from __future__ import annotations

import dataclasses
import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError, HomingError
from homing.report.films import films_of
from homing.runs.folder import CONFIG, LOCK, METRICS, SUMMARY, RunFolder
from homing.runs.strict_json import RESTORE, describe, flat, read_json
from homing.runs.validation import COUNT, TEXT, Row, fault, read_rows

MAX_NAME = 200  # characters of an agent's or an environment's name


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """One run: its settings, the hardware it ran on and its metrics so far."""

    path: Path
    config: Mapping[str, Any]
    """By dotted name: `settings.energy`, `train.num_envs`; empty for a metrics file alone."""
    rows: Sequence[Row]
    sessions: Sequence[Mapping[str, Any]] = ()
    status: str = "finished"
    """finished, running, or unfinished"""
    films: Sequence[Path] = ()
    remarks: Sequence[str] = ()
    """What is wrong with files that the report can do without."""

    @property
    def agent(self) -> str:
        return self.config.get("agent", self.path.stem)

    @property
    def env(self) -> str:
        return self.config.get("env", "unknown environment")


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something a reader of results should know about a run."""

    where: str
    what: str


def find_runs(places: Sequence[str | Path]) -> list[Path]:
    """Folders of runs (and metrics files): each place is one, holds some, or is a pattern of such."""
    found: dict[Path, None] = {}
    for place in places:
        try:
            paths = _matching(place)
        except OSError as error:
            raise ConfigError(
                f"{str(place)[:60]} is not a usable path ({error.strerror}); name a run's folder"
            ) from error
        runs = [run for path in paths for run in _runs_below(path)]
        if not runs:
            there = "holds no run" if any(path.exists() for path in paths) else "does not exist"
            raise ConfigError(
                f"{place} {there}; name the folder of a run (it has a config.json), "
                "a folder of such folders, or a pattern such as 'runs/ant-*'"
            )
        found |= dict.fromkeys(run.absolute() for run in runs)
    return list(found)


def _matching(place: str | Path) -> list[Path]:
    """The path itself, or what it matches as a pattern."""
    if Path(place).exists() or not glob.has_magic(str(place)):
        return [Path(place)]
    return [Path(p) for p in sorted(glob.glob(os.path.expanduser(str(place)), recursive=True))]


def _runs_below(path: Path) -> Iterator[Path]:
    if path.is_file():
        if path.suffix == ".jsonl":
            yield path
        return
    for folder, inner, files in os.walk(path):
        if CONFIG in files:
            inner.clear()  # a run holds no other run
            yield Path(folder)
        inner.sort()


def read_runs(
    paths: Sequence[Path], read: Callable[[Path], RunRecord] | None = None
) -> tuple[list[RunRecord], list[Problem]]:
    """All runs that can be read, and remarks on them and on those that cannot."""
    records, problems = [], []
    read = read or read_run
    names = short_names(paths)
    for path, name in zip(paths, names, strict=True):
        try:
            record = read(path)
        except HomingError as error:
            problems.append(Problem(name, f"unreadable, left out: {printable(str(error))}"))
            continue
        problems += [Problem(name, what) for what in _remarks(record)]
        if record.rows:
            records.append(record)
    return records, problems


def read_run(path: Path) -> RunRecord:
    """One run; HomingError says what cannot be read."""
    if path.is_file():
        return RunRecord(path, {}, read_rows(path))
    config = read_settings(path / CONFIG)
    sessions, remarks = _sessions(path)
    return RunRecord(
        path=path,
        config=config,
        rows=read_rows(path / METRICS),
        sessions=sessions,
        status=run_status(path),
        films=films_of(path),
        remarks=remarks,
    )


def read_settings(path: Path) -> dict[str, Any]:
    """Settings by dotted name; those of other versions of Homing are fine."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise HomingError(f"{path} holds {describe(content)}, which is not that of a run; {RESTORE}")
    for name in ("agent", "env"):
        value = content.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
            raise HomingError(f"{path} is not that of a run: {name} is {describe(value)}; {RESTORE}")
    settings = flat(content)
    if wrong := fault(settings, _SETTINGS):
        raise HomingError(f"{path} is not that of a run: {wrong}; {RESTORE}")
    return settings


_SETTINGS = {"train.total_steps": COUNT, "preset": TEXT}


def _sessions(path: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """The hardware of a run; curves are shown without it where it cannot be read."""
    try:
        return RunFolder(path).sessions(), ()
    except HomingError as error:
        return (), (f"its hardware is not shown: {printable(str(error))}",)


def run_status(path: Path) -> str:
    """`finished`, `running` or `unfinished`."""
    if (path / SUMMARY).is_file():
        return "finished"
    return "running" if _is_held(path / LOCK) else "unfinished"


def _is_held(lock: Path) -> bool:
    """Whether a process of this machine holds the lock; looks without touching it."""
    try:
        inode = str(lock.stat().st_ino)
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    return any(line.split()[1] == "FLOCK" and line.split()[5].split(":")[-1] == inode for line in locks)


def _remarks(record: RunRecord) -> Iterator[str]:
    yield from record.remarks
    if not record.rows:
        yield f"left out: no evaluation yet ({record.status})"
        return
    step = max(row["step"] for row in record.rows)
    if record.status != "finished":
        wanted = record.config.get("train.total_steps")
        of = f" of {wanted:,}" if isinstance(wanted, int) else ""
        yield f"{record.status}: {step:,}{of} steps so far; last written {age(record.path / METRICS)}"
    diverged = sorted({row["seed"] for row in record.rows if not row.get("finite", True)})
    if diverged:
        seeds = ", ".join(map(str, diverged))
        yield f"seed {seeds} diverged (NaN or infinity) and no longer counts in averages"
    if not any(name.startswith("eval/") for row in record.rows for name in row):
        yield "holds no evaluation metric"


def age(path: Path) -> str:
    """How long ago a file was written, in words."""
    try:
        seconds = max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return "some time ago"
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def short_names(paths: Sequence[Path]) -> list[str]:
    """Names of runs without the folders that all share; never empty."""
    if len(paths) == 1:
        return [printable(paths[0].name)]
    shared = Path(os.path.commonpath([p.parent for p in paths])) if paths else Path()
    return [printable(str(p.relative_to(shared))) for p in paths]


def printable(name: str) -> str:
    """A file's name as text that can be written: bytes that are no UTF-8 are replaced."""
    return os.fsencode(name).decode(errors="replace")
