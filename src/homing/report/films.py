"""Films and pictures of a run: plain files inside its folder, of known types and bounded size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

KINDS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif", ".png": "image/png"}
MAX_BYTES = 2**30
MAX_FILMS = 64  # of one run


def films_of(run: Path) -> tuple[Path, ...]:
    """Films and pictures in a run's folder or in its `films`; links are passed over."""
    found: list[Path] = []
    for place in (run, run / "films"):
        try:
            if place != run and place.is_symlink():
                continue
            found += [Path(entry.path) for entry in os.scandir(place) if _is_film(entry)]
        except OSError:  # no such folder, or none that may be read
            continue
    return tuple(sorted(found)[:MAX_FILMS])


def _is_film(entry: os.DirEntry[str]) -> bool:
    if Path(entry.name).suffix not in KINDS or not entry.is_file(follow_symlinks=False):
        return False
    return entry.stat(follow_symlinks=False).st_size <= MAX_BYTES


def film_size(path: Path) -> int | None:
    """Bytes of a film; None where it is no plain file any more."""
    try:
        state = path.lstat()
    except OSError:
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) and state.st_size <= MAX_BYTES else None


def read_film(path: Path, part: range | None = None) -> bytes | None:
    """The bytes of a film, or a part of them; None where it is no plain file any more."""
    try:
        # The file may have become a link or a pipe since it was found.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_BYTES:
            return None
        start, count = (part.start, len(part)) if part is not None else (0, state.st_size)
        with open(file, "rb", closefd=False) as opened:
            opened.seek(start)
            return opened.read(count)
    except OSError:
        return None
    finally:
        os.close(file)
