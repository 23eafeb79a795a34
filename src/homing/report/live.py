"""The page's content for runs that may still be running, rebuilt when their files, status or ages change."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError
from homing.report.content import make_content
from homing.report.films import film_size, films_of
from homing.report.groups import By
from homing.report.page import film_entry
from homing.report.reading import RunRecord, age, find_runs, read_run, read_runs, run_status, short_names
from homing.runs.folder import CONFIG, METRICS, SESSIONS, SUMMARY

WATCHED = (CONFIG, METRICS, SESSIONS, SUMMARY)


class Live:
    """The current content of a page; safe to use from several threads."""

    def __init__(self, places: Sequence[str | Path], by: By = "settings", title: str | None = None):
        self._places, self._title = places, title
        self._by: By = by
        self._guard = threading.Lock()
        self._page: dict[str, Any] = {}
        self._films: list[Path] = []
        self._memory: dict[str, Any] = {}
        self._known: dict[Path, tuple[str, RunRecord]] = {}

    def page(self) -> dict[str, Any]:
        """What the page shows now; its `stamp` changes when that does."""
        with self._guard:
            paths = self._paths()
            marks = " ".join(f"{path} {_mark(path)} {_age(path)}" for path in paths)
            stamp = hashlib.sha256(marks.encode(errors="surrogateescape")).hexdigest()[:16]
            if stamp != self._page.get("stamp"):
                self._page = self._make(paths) | {"stamp": stamp, "live": True}
            return self._page

    def film(self, number: int) -> Path | None:
        with self._guard:
            return self._films[number] if 0 <= number < len(self._films) else None

    def _paths(self) -> list[Path]:
        found: dict[Path, None] = {}
        for place in self._places:
            try:
                found |= dict.fromkeys(find_runs([place]))
            except ConfigError:
                continue  # its first run may be about to begin
        return list(found)

    def _make(self, paths: Sequence[Path]) -> dict[str, Any]:
        records, problems = read_runs(paths, self._read)
        title = self._title or (None if records else "Waiting for the first evaluation")
        page = make_content(records, problems, by=self._by, title=title, memory=self._memory).page
        names = short_names([record.path for record in records])
        films = [(n, film) for record, n in zip(records, names, strict=True) for film in record.films]
        self._films = [film for _, film in films]
        page["films"] = [
            film_entry(name, film, film_size(film) or 0, f"film/{i}") for i, (name, film) in enumerate(films)
        ]
        return page

    def _read(self, path: Path) -> RunRecord:
        """A run, cached until one of its files or its status changes."""
        mark = _mark(path)
        if path not in self._known or self._known[path][0] != mark:
            self._known[path] = (mark, read_run(path))
        return self._known[path][1]


def _mark(path: Path) -> str:
    """Modification times and sizes of a run's files and films, and its status.

    A process that is killed releases the run's lock and writes nothing.
    """
    if path.is_file():
        return _state(path)
    files = [path / name for name in WATCHED] + list(films_of(path))
    return ",".join([run_status(path), *map(_state, files)])


def _state(file: Path) -> str:
    try:
        state = file.stat()
    except OSError:
        return "absent"
    return f"{state.st_mtime_ns}-{state.st_size}"


def _age(path: Path) -> str:
    """Age of an unfinished run's metrics as the page words it; that of others is not shown."""
    if path.is_file() or run_status(path) == "finished":
        return ""
    return age(path / METRICS)
