"""Strict reading of JSON files that may be damaged or crafted: bounded, finite, and an error that names the file."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from homing.errors import HomingError

RESTORE = "put it back from a copy"
MAX_BYTES = 16 * 2**20
MAX_DEPTH = 32
MAX_DIGITS = 19  # of an integer: as many as 2⁶³ has
# Escapes that may stand for control characters or for half of a surrogate pair.
_SUSPECT = re.compile(r"\\u(?:00[0-9]|d[89a-f])", re.IGNORECASE)
# A terminal would obey some of these, and UTF-8 cannot encode the surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def open_plain(path: Path) -> BinaryIO:
    """A file to read; a pipe does not block, and `check_regular` refuses it."""
    try:
        return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise HomingError(f"cannot read {path}: {_reason(error)}; {RESTORE}") from error


def read_plain(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes."""
    with open_plain(path) as file:
        check_regular(path, os.fstat(file.fileno()), limit)
        try:
            return file.read(limit)
        except OSError as error:
            raise HomingError(f"cannot read {path}: {_reason(error)}; check the disk") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def check_regular(path: Path, state: os.stat_result, limit: int) -> None:
    """Refuse what is no regular file or is larger than `limit` bytes."""
    if not stat.S_ISREG(state.st_mode):
        kind = "a folder" if stat.S_ISDIR(state.st_mode) else "no regular file"
        raise HomingError(f"cannot read {path}: it is {kind}; {RESTORE}")
    if state.st_size > limit:
        raise HomingError(
            f"cannot read {path}: it has {state.st_size:,} bytes, more than the {limit:,} that such a file may "
            f"have; {RESTORE}"
        )


def read_json(path: Path, limit: int = MAX_BYTES) -> Any:
    """The content of a JSON file."""
    try:
        return parse_json(read_plain(path, limit))
    except ValueError as error:
        raise HomingError(f"cannot read {path}: {error}; {RESTORE}") from error


def parse_json(raw: bytes | str) -> Any:
    """JSON of bounded depth and numbers, with unique keys and printable texts; ValueError says what is wrong."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    if _UNPRINTABLE.search(text):
        raise ValueError("it holds unprintable characters")
    if _SUSPECT.search(text) and any(_UNPRINTABLE.search(part) for part in _texts(value)):
        raise ValueError("it holds unprintable characters")
    return value


def describe(value: Any) -> str:
    """A JSON value in a few characters, for a message."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names; an empty part has none."""
    settings: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{name}.")
        else:
            settings[f"{prefix}{name}"] = value
    return settings


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS + 1:
        raise ValueError(f"it holds an integer of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"it holds a number that is too large ({text[:20]})")
    return value


def _constant(text: str) -> float:
    if text == "NaN":
        raise ValueError("it holds a NaN")
    return float(text)  # a setting may be infinite


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _children(outer) if isinstance(inner, dict | list)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        yield from value
    for inner in _children(value):
        yield from _texts(inner)
