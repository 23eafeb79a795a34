"""A file of named arrays and a JSON text: the safetensors layout, with a digest.

Eight bytes with the size of a header, the header in JSON (type, shape and place of every array, and texts
under `__metadata__`), then the arrays. Reading executes nothing, and any tool for safetensors reads it too.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from homing.errors import HomingError
from homing.runs.folder import write_whole
from homing.version import __version__

FORMAT = "homing policy"
VERSION = 1
DTYPES = {"F32": "<f4", "F16": "<f2", "I32": "<i4", "U32": "<u4", "BOOL": "|b1"}
CODES = {np.dtype(text): code for code, text in DTYPES.items()}
MAX_HEADER = 16 * 2**20
PREFIX = 8


class DamagedFile(HomingError):
    """A file that is not what was written, or never was a policy."""


def write(path: Path, arrays: Mapping[str, np.ndarray], content: Any) -> None:
    """Write arrays and what describes them; whole or not at all."""
    table, parts, place = {}, [], 0
    for name, array in sorted(arrays.items()):
        raw = np.ascontiguousarray(array)
        if raw.dtype not in CODES:
            raise HomingError(f"a policy file holds no arrays of {raw.dtype}, which {name} is")
        end = place + raw.nbytes
        table[name] = {"dtype": CODES[raw.dtype], "shape": list(raw.shape), "data_offsets": [place, end]}
        parts.append(raw.tobytes())
        place = end
    data, text = b"".join(parts), json.dumps(content, allow_nan=False)
    notes = {
        "format": FORMAT,
        "version": str(VERSION),
        "written_by": __version__,
        "content": text,
        "sha256": _digest(table, text, data),
    }
    header = json.dumps({"__metadata__": notes, **table}).encode()
    header += b" " * (-len(header) % PREFIX)  # arrays begin where a processor likes them to
    write_whole(path, len(header).to_bytes(PREFIX, "little") + header + data)


def read(path: Path) -> tuple[dict[str, np.ndarray], Any]:
    """Arrays by name, and the JSON content; refuses everything that is not exactly what was written."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise HomingError(f"cannot read {path}: {error.strerror}") from error
    header, data = _split(path, raw)
    notes = header.pop("__metadata__", None)
    if not isinstance(notes, dict) or notes.get("format") != FORMAT:
        raise _no_policy(path)
    if notes.get("version") != str(VERSION):
        raise HomingError(
            f"{path} is a policy file of version {notes.get('version')}, written by Homing "
            f"{notes.get('written_by', '?')}; this is Homing {__version__}, which reads version {VERSION}: "
            "install the Homing that wrote it, or export the policy again"
        )
    if notes.get("sha256") != _digest(header, str(notes.get("content")), data):
        raise _damaged(path, "its contents are not what was written")
    try:
        arrays = {name: _array(entry, data) for name, entry in header.items()}
        return arrays, json.loads(notes["content"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def _split(path: Path, raw: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(raw[:PREFIX], "little")
    if len(raw) < PREFIX + 2 or size > MAX_HEADER or raw[PREFIX : PREFIX + 1] != b"{":
        raise _no_policy(path)
    if PREFIX + size > len(raw):
        raise _damaged(path, "its end is missing")
    try:
        header = json.loads(raw[PREFIX : PREFIX + size])
    except ValueError as error:  # also of bytes that are no text
        raise _damaged(path, "its header cannot be read") from error
    if not isinstance(header, dict):
        raise _no_policy(path)
    data = raw[PREFIX + size :]
    places = [entry.get("data_offsets") for entry in header.values() if isinstance(entry, dict)]
    if len(data) < max((place[1] for place in places if place), default=0):
        raise _damaged(path, "its end is missing")
    return header, data


def _array(entry: Mapping[str, Any], data: bytes) -> np.ndarray:
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if end - start != dtype.itemsize * math.prod(shape):
        raise ValueError("an array is not as large as its shape")
    return np.frombuffer(data[start:end], dtype).reshape(shape)


def _digest(table: Mapping[str, Any], text: str, data: bytes) -> str:
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode())
    digest.update(text.encode())
    digest.update(data)
    return digest.hexdigest()


def _no_policy(path: Path) -> DamagedFile:
    return DamagedFile(f"{path} is no policy file; `homing export RUN --out FILE` makes one")


def _damaged(path: Path, why: str) -> DamagedFile:
    return DamagedFile(f"the policy file {path} is damaged ({why}); copy or export it again")
