"""Compiled programs kept on disk for the next run: in a folder that is the user's alone, each entry checked.

What is in the cache is executed, so a folder that others can write to is not used. JAX's own cache neither
writes an entry at once nor looks at what it reads: a process that is killed leaves half a program behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax

MIN_SECONDS = 0.1  # quicker compilations are not worth a file

_warned: set[str] = set()


def cache_folder() -> Path:
    """Where compiled programs are kept unless JAX_COMPILATION_CACHE_DIR says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "homing" / "programs"


def keep_compiled() -> None:
    """Turn on the cache of compiled programs; before the first compilation."""
    chosen = jax.config.values["jax_compilation_cache_dir"]
    if chosen is not None:
        if "://" not in chosen and not is_private(Path(chosen), ours=False):
            jax.config.update("jax_compilation_cache_dir", None)
        return
    folder = cache_folder()
    if not is_private(folder):
        return
    _check_entries()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def is_private(folder: Path, ours: bool = True) -> bool:
    """Make a cache folder if need be; False, with one warning, if others could put programs into it.

    ours: a folder that this package makes, closed to others altogether; else one that the user has named
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
        mode = stat.S_IMODE(facts.st_mode)
        if facts.st_uid != os.getuid():
            raise PermissionError("it belongs to another user")
        if mode & 0o022:
            raise PermissionError(
                f"other users can write to it; remove its contents and run: chmod 700 {folder}"
            )
        if ours and mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        warn_once(f"compiled programs are not kept in {folder}: {error.strerror or error}")
        return False
    return True


def warn_once(text: str) -> None:
    """A line on stderr, the first time."""
    if text not in _warned:
        _warned.add(text)
        print(f"homing: {text}", file=sys.stderr, flush=True)


def read_checked(path: Path) -> bytes | None:
    """The content that `write_checked` wrote; None if there is none. A damaged file is removed, with a warning."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    digest, content = whole[:32], whole[32:]
    if hashlib.sha256(content).digest() == digest:
        with contextlib.suppress(OSError):
            os.utime(path)
        return content
    warn_once(f"the compiled program {path} was damaged and is made again")
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def write_checked(path: Path, content: bytes) -> None:
    """Whole or not at all; a disk that cannot be written to costs time, not the run."""
    try:
        # Each writer has a draft of its own: runs that start together make the same program.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            draft = Path(file.name)
            try:
                file.write(hashlib.sha256(content).digest() + content)
                file.flush()
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        warn_once(f"compiled programs cannot be kept in {path.parent}: {error.strerror}")


class CheckedCache:
    """What JAX asks for compiled programs, with whole and checked files."""

    def __init__(self, folder: Path):
        self._path = folder

    def get(self, key: str) -> bytes | None:
        return read_checked(self._path / f"{key}-cache")

    def put(self, key: str, value: bytes) -> None:
        write_checked(self._path / f"{key}-cache", value)


def _check_entries() -> None:
    """Let JAX use `CheckedCache` for our folder; a version of JAX without this seam keeps its own."""
    from jax._src import compilation_cache

    make: Any = getattr(compilation_cache, "get_file_cache", None)
    if make is None or getattr(make, "checked", False):
        return

    def get_file_cache(path: str) -> Any:
        return (CheckedCache(Path(path)), path) if Path(path) == cache_folder() else make(path)

    get_file_cache.checked = True  # type: ignore[attr-defined]
    compilation_cache.get_file_cache = get_file_cache
