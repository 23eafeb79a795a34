"""Runs as they lie on the disk, also those that are broken, unfinished or still going on."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError, HomingError
from homing.runs.folder import CONFIG, LOCK, METRICS, SUMMARY, Row, RunFolder, read_rows

FILMS = (".mp4", ".webm", ".gif", ".png")


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """One run: what was asked, what it ran on and what it has measured so far."""

    path: Path
    config: Mapping[str, Any]
    """By dotted name: `settings.energy`, `train.num_envs`; empty for a metrics file alone."""
    rows: Sequence[Row]
    sessions: Sequence[Mapping[str, Any]] = ()
    status: str = "finished"
    """finished, running, or unfinished"""
    films: Sequence[Path] = ()

    @property
    def agent(self) -> str:
        return self.config.get("agent", self.path.stem)

    @property
    def env(self) -> str:
        return self.config.get("env", "environment not told")


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something a reader of results should know about a run."""

    where: str
    what: str


def find_runs(places: Sequence[str | Path]) -> list[Path]:
    """Folders of runs (and metrics files): each place is one, holds some, or is a pattern of such."""
    found: dict[Path, None] = {}
    for place in places:
        paths = [Path(place)]
        if not paths[0].exists() and glob.has_magic(str(place)):
            paths = [Path(p) for p in sorted(glob.glob(os.path.expanduser(str(place)), recursive=True))]
        runs = [run for path in paths for run in _runs_below(path)]
        if not runs:
            there = "holds no run" if any(path.exists() for path in paths) else "does not exist"
            raise ConfigError(
                f"{place} {there}; name the folder of a run (it has a config.json), "
                "a folder of such folders, or a pattern such as 'runs/ant-*'"
            )
        found |= dict.fromkeys(run.absolute() for run in runs)
    return list(found)


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
    """All runs that can be read, and what is wrong with the others or notable about these."""
    records, problems = [], []
    read = read or read_run
    names = short_names(paths)
    for path, name in zip(paths, names, strict=True):
        try:
            record = read(path)
        except HomingError as error:
            problems.append(Problem(name, f"left out: {error}"))
            continue
        problems += [Problem(name, what) for what in _remarks(record)]
        if record.rows:
            records.append(record)
    return records, problems


def read_run(path: Path) -> RunRecord:
    """One run; HomingError says what cannot be read."""
    if path.is_file():
        return RunRecord(path, {}, _checked(read_rows(path), path))
    folder = RunFolder(path)
    config = _json(path / CONFIG)
    if not isinstance(config, dict) or not {"agent", "env"} <= set(config):
        raise HomingError("its config.json is not that of a run")
    return RunRecord(
        path=path,
        config=flat(config),
        rows=_checked(read_rows(path / METRICS), path / METRICS),
        sessions=_sessions(folder),
        status=_status(folder),
        films=films_of(path),
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise HomingError(f"cannot read {path.name}: {error}") from error


def _checked(rows: list[Row], path: Path) -> list[Row]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not {"seed", "step"} <= set(row):
            raise HomingError(f"line {number} of {path.name} has no seed and step")
    return rows


def _sessions(folder: RunFolder) -> Sequence[Mapping[str, Any]]:
    """What the run ran on, where that can be read: curves are worth showing without it."""
    try:
        return folder.sessions()
    except HomingError:
        return ()


def _status(folder: RunFolder) -> str:
    if (folder.path / SUMMARY).exists():
        return "finished"
    return "running" if _is_held(folder.path / LOCK) else "unfinished"


def _is_held(lock: Path) -> bool:
    """Whether a process of this machine holds the lock; looks without touching it."""
    try:
        inode = str(lock.stat().st_ino)
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    return any(line.split()[1] == "FLOCK" and line.split()[5].split(":")[-1] == inode for line in locks)


def _remarks(record: RunRecord) -> Iterator[str]:
    if not record.rows:
        yield f"left out: no evaluation yet ({record.status})"
        return
    step = max(row["step"] for row in record.rows)
    if record.status != "finished":
        wanted = record.config.get("train.total_steps")
        of = f" of {wanted:,}" if isinstance(wanted, int) else ""
        yield f"{record.status}: {step:,}{of} steps so far; last written {_age(record.path / METRICS)}"
    diverged = sorted({row["seed"] for row in record.rows if not row.get("finite", True)})
    if diverged:
        seeds = ", ".join(map(str, diverged))
        yield f"seed {seeds} diverged (NaN or infinity) and no longer counts in averages"
    if not any(name.startswith("eval/") for row in record.rows for name in row):
        yield "holds no evaluation metric"


def _age(path: Path) -> str:
    try:
        seconds = max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return "some time ago"
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def films_of(path: Path) -> tuple[Path, ...]:
    """Films and pictures in a run's folder or in its `films`."""
    places = (path, path / "films")
    found = [f for place in places if place.is_dir() for f in place.iterdir() if f.suffix in FILMS]
    return tuple(sorted(found))


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names; a part without any has none."""
    told: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            told |= flat(value, f"{prefix}{name}.")
        else:
            told[f"{prefix}{name}"] = value
    return told


def short_names(paths: Sequence[Path]) -> list[str]:
    """Names of runs without the folders that all share; never empty."""
    if len(paths) == 1:
        return [paths[0].name]
    shared = Path(os.path.commonpath([p.parent for p in paths])) if paths else Path()
    return [str(p.relative_to(shared)) for p in paths]
