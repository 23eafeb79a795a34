"""Files of named arrays and texts in the safetensors format, with a digest; reading one executes nothing."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from homing.errors import HomingError
from homing.runs.folder import write_whole
from homing.runs.strict_json import check_regular, describe, parse_json
from homing.version import __version__

SUFFIX = ".safetensors"
METADATA = "homing"
FORMAT = "homing policy"
VERSION = 2
DTYPES = {"F32": "<f4", "F16": "<f2", "I32": "<i4", "U32": "<u4", "BOOL": "|b1"}
CODES = {np.dtype(text): code for code, text in DTYPES.items()}
MAX_HEADER = 16 * 2**20
MAX_BYTES = 4 * 2**30
PIECE = 2**20  # bytes read at once
PREFIX = 8  # bytes that hold the size of the header


class DamagedFile(HomingError):
    """A file that is not what was written, or never was a policy."""


class Tensor(NamedTuple):
    """An array as a file's header describes it."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


class Place(NamedTuple):
    """An array and where its bytes lie behind the header."""

    tensor: Tensor
    start: int
    end: int


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray], content: Any) -> None:
    """Write arrays and JSON that describes them; the file is whole or not there at all."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())}
    if bad := [name for name, array in arrays.items() if array.dtype not in CODES]:
        raise HomingError(f"a policy file holds no arrays of {arrays[bad[0]].dtype}, which {bad[0]} is")
    notes = {"format": FORMAT, "version": VERSION, "written_by": __version__, "content": content}
    notes = json.loads(json.dumps(notes))
    digest = _Digest(notes)
    for name, array in arrays.items():
        digest.begin(name, Tensor(array.dtype, array.shape))
        digest.sha.update(array.tobytes())
    text = json.dumps(notes | {"sha256": digest.sha.hexdigest()})
    # One key, since the library writes several in no fixed order: equal policies make equal files.
    write_whole(path, save(arrays, {METADATA: text}))


class TensorFile:
    """An open file of arrays: its header is checked at once, `verified` checks the rest, `arrays` reads it.

    content: the JSON that was written with them
    tensors: type and shape of each array
    """

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self._file = path, file
        size = self._size()
        header, self._start = self._header(size)
        self._notes = self._read_notes(header.pop("__metadata__", None))
        self._places = self._table(header, size - self._start)
        self.tensors = {name: place.tensor for name, place in self._places.items()}
        self._sha256, self.content = self._notes.pop("sha256", None), self._notes.get("content")

    def verified(self) -> TensorFile:
        """The file itself, if its contents have the digest that was written with them."""
        if self._sha256 != self._digest():
            raise self.damaged("its contents are not what was written")
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        self._file.seek(0)
        try:
            return load(self._file.read(self._start + sum(t.nbytes for t in self.tensors.values())))
        except (SafetensorError, ValueError, OSError) as error:
            raise self.damaged(str(error)) from error

    def damaged(self, why: str) -> DamagedFile:
        return DamagedFile(f"the policy file {self.path} is damaged ({why}); copy or export it again")

    def _size(self) -> int:
        state = os.fstat(self._file.fileno())
        check_regular(self.path, state, MAX_BYTES)
        return state.st_size

    def _header(self, size: int) -> tuple[dict[str, Any], int]:
        """The header, and where it ends."""
        raw = self._file.read(PREFIX + 1)
        length = int.from_bytes(raw[:PREFIX], "little")
        if len(raw) < PREFIX + 1 or length > MAX_HEADER or raw[PREFIX:] != b"{":
            raise not_a_policy(self.path)
        if PREFIX + length > size:
            raise self.damaged("its end is missing")
        text = raw[PREFIX:] + self._file.read(length - 1)
        try:
            header = parse_json(text)
        except ValueError as error:
            raise self.damaged(f"its header cannot be read: {error}") from error
        if not isinstance(header, dict):
            raise not_a_policy(self.path)
        return header, PREFIX + length

    def _read_notes(self, metadata: Any) -> dict[str, Any]:
        text = metadata.get(METADATA) if isinstance(metadata, dict) else None
        if not isinstance(text, str):
            raise not_a_policy(self.path)
        try:
            notes = parse_json(text)
        except ValueError as error:
            raise self.damaged(f"its metadata cannot be read: {error}") from error
        if not isinstance(notes, dict) or notes.get("format") != FORMAT:
            raise not_a_policy(self.path)
        if notes.get("version") != VERSION:
            raise HomingError(
                f"{self.path} is a policy file of version {describe(notes.get('version'))}, written by Homing "
                f"{describe(notes.get('written_by'))}; this is Homing {__version__}, which reads version "
                f"{VERSION}: install the Homing that wrote it, or export the policy again"
            )
        return notes

    def _table(self, header: Mapping[str, Any], size: int) -> dict[str, Place]:
        """Arrays by name; together they fill the rest of the file without gaps."""
        try:
            entries = {name: _entry(name, entry) for name, entry in header.items()}
        except ValueError as error:
            raise self.damaged(str(error)) from error
        place = 0
        for tensor, start, end in sorted(entries.values(), key=lambda entry: entry[1:]):
            if start != place or end - start != tensor.nbytes:
                raise self.damaged("its arrays overlap, leave gaps or are not as large as their shapes")
            place = end
        if place != size:
            raise self.damaged(
                "its end is missing" if place > size else "its contents are not what was written"
            )
        return entries

    def _digest(self) -> str:
        digest = _Digest(self._notes)
        for name, (tensor, start, _) in sorted(self._places.items()):
            digest.begin(name, tensor)
            self._file.seek(self._start + start)
            left = tensor.nbytes
            while left and (part := self._file.read(min(left, PIECE))):
                digest.sha.update(part)
                left -= len(part)
        return digest.sha.hexdigest()


class _Digest:
    """SHA-256 over the JSON notes, then name, type, shape and bytes of every array, by name."""

    def __init__(self, notes: Mapping[str, Any]):
        self.sha = hashlib.sha256(json.dumps(notes, sort_keys=True).encode())

    def begin(self, name: str, tensor: Tensor) -> None:
        self.sha.update(json.dumps([name, CODES[tensor.dtype], tensor.shape]).encode())


def not_a_policy(path: Path) -> DamagedFile:
    return DamagedFile(f"{path} is not a policy file; `homing export RUN --out FILE{SUFFIX}` makes one")


def _entry(name: str, entry: Any) -> Place:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"its header does not describe {name!r:.60}")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise ValueError(f"{name!r:.60} has the unknown type {describe(code)}")
    if not _are_sizes(shape) or len(shape) > 16 or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"the shape or the place of {name!r:.60} is impossible")
    return Place(Tensor(np.dtype(DTYPES[code]), tuple(shape)), *offsets)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v <= MAX_BYTES for v in values)
