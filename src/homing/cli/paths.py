"""Files and folders that a command is to write: refused before anything is computed."""

from __future__ import annotations

import os
from pathlib import Path

from homing.errors import ConfigError

MAX_NAME = 255  # bytes of one name on common file systems


def check_file(flag: str, path: Path) -> Path:
    """Refuse a file that could not be written in the end."""
    _check_names(flag, path)
    if path.is_dir():
        raise ConfigError(f"{flag} {path} is a folder; name a file in it")
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError(f"{flag} {path} cannot be written: it is read-only")
    _check_parent(flag, path)
    return path


def check_folder(flag: str, path: Path) -> Path:
    """Refuse a folder that could not be made or written to."""
    _check_names(flag, path)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{flag} {path} is a file; name a folder")
    _check_parent(flag, path, inside=True)
    return path


def _check_names(flag: str, path: Path) -> None:
    if not path.name:
        raise ConfigError(f"{flag} needs a name, not {str(path)!r}")
    for part in path.parts:
        if len(os.fsencode(part)) > MAX_NAME or "\0" in part:
            raise ConfigError(
                f"{flag} {part[:40]}... is not a valid name: at most {MAX_NAME} bytes, none of them 0"
            )


def _check_parent(flag: str, path: Path, inside: bool = False) -> None:
    """Refuse a path where nothing can be made; with `inside`, a folder in which nothing can be."""
    whole = path.absolute()
    folders = (whole, *whole.parents) if inside else whole.parents
    there = next(folder for folder in folders if folder.exists())
    # The kernel's own folders let root through every check and then refuse.
    kernel = there.parts[:2] in (("/", "proc"), ("/", "sys"))
    if kernel or not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(f"{flag} {path} cannot be written: {there} is not a folder that you may write to")
