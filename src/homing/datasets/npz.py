"""Dataset files in OGBench's layout: `observations`, `actions` and `terminals` in an npz, without pickled objects.

Three arrays more say what OGBench's do not, and its loader passes them over: `terminated` (which episodes ended by a
fall), `goals` (the commanded ones) and `homing` (how the data was made, as JSON).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from homing.config.plan import human_bytes
from homing.datasets.episodes import Dataset, check_notes, from_rows
from homing.errors import ConfigError, HomingError
from homing.runs.folder import write_with
from homing.runs.strict_json import check_regular, open_plain, parse_json

SUFFIX = ".npz"
NOTES = "homing"
REQUIRED = ("observations", "actions", "terminals")
OPTIONAL = ("terminated", "goals", NOTES)
MAX_BYTES = 64 * 2**30
MAX_NOTES = 2**20  # characters
MAX_RATIO = 1_100  # of deflate; an entry that claims more is no array
PIECE = 2**24


def val_path(path: Path) -> Path:
    """The validation file beside a training file: `x-val.npz` beside `x.npz`."""
    return path.with_name(f"{path.stem}-val{SUFFIX}")


def check_name(path: str | Path) -> Path:
    """Refuse a path that cannot be that of a dataset."""
    path = Path(path)
    if path.suffix != SUFFIX:
        raise ConfigError(f"a dataset's file ends in {SUFFIX}, not in {path.suffix or path.name!r}")
    return path


def write_dataset(path: str | Path, dataset: Dataset) -> Path:
    """Write a dataset, the whole file or nothing."""
    path = check_name(path)
    terminals = np.zeros(dataset.rows, np.float32)
    terminals[dataset.ends] = 1
    terminated = np.zeros(dataset.rows, bool)
    terminated[dataset.ends] = dataset.terminated
    arrays: dict[str, np.ndarray] = {
        "observations": dataset.observations,
        "actions": dataset.actions,
        "terminals": terminals,
        "terminated": terminated,
        NOTES: np.array(json.dumps(dict(dataset.notes))),
    }
    if dataset.goals is not None:
        arrays["goals"] = dataset.goals
    save = lambda file: np.savez(file, **arrays)  # type: ignore[arg-type]
    write_with(path, save, parents=True, fix="; make room or choose another --out")
    return path


def size_of(rows: int, state_dim: int, action_dim: int, goal_dim: int) -> int:
    """Bytes of a file of so many rows, nearly."""
    return rows * (4 * (state_dim + action_dim + goal_dim + 1) + 1)


def read_dataset(path: str | Path, sha256: str = "") -> Dataset:
    """A dataset from a file, checked before and after it is loaded; `sha256` is the digest it must have."""
    path = Path(path)
    if not path.exists():
        again = "put it back where the run found it" if sha256 else "`homing data export` writes one"
        raise ConfigError(f"the dataset {path} does not exist; {again}")
    with open_plain(path) as file:
        check_regular(path, os.fstat(file.fileno()), MAX_BYTES)
        digest = _digest(file)
        if sha256 and digest != sha256:
            raise ConfigError(
                f"the dataset {path} is not the one that the run began with (its SHA-256 differs); "
                "put that one back, or start another run"
            )
        try:
            return _dataset(_arrays(file), digest)
        except HomingError as error:
            raise HomingError(f"cannot use the dataset {path}: {error}") from error
        except (
            OSError,
            ValueError,
            EOFError,
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
        ) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise HomingError(
                f"cannot use the dataset {path}: it is damaged or not an npz file ({reason}); copy or export it again"
            ) from error


def _dataset(arrays: Mapping[str, np.ndarray], digest: str) -> Dataset:
    notes: Any = {}
    if NOTES in arrays:
        try:
            notes = check_notes(parse_json(str(arrays[NOTES])))
        except ValueError as error:
            raise HomingError(f"its notes cannot be read: {error}") from error
    rows = {name: arrays[name] for name in REQUIRED}
    made = from_rows(**rows, terminated=arrays.get("terminated"), goals=arrays.get("goals"), notes=notes)
    return Dataset(**{**vars(made), "sha256": digest})


def _digest(file: BinaryIO) -> str:
    sha = hashlib.sha256()
    while part := file.read(PIECE):
        sha.update(part)
    file.seek(0)
    return sha.hexdigest()


def _arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of a dataset; every header is checked before the first is allocated."""
    with zipfile.ZipFile(file) as archive:
        there = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if missing := [name for name in REQUIRED if name not in there]:
            known = ", ".join(sorted(there)[:8]) or "nothing"
            raise HomingError(f"it has no {missing[0]}, which a dataset needs; it has {known[:120]}")
        wanted = {name: there[name] for name in (*REQUIRED, *OPTIONAL) if name in there}
        total = sum(_check_entry(archive, name, info) for name, info in wanted.items())
        if total > MAX_BYTES:
            raise HomingError(
                f"its arrays take {human_bytes(total)}; at most {human_bytes(MAX_BYTES)} are read"
            )
        arrays = {}
        for name, info in wanted.items():
            with archive.open(info) as entry:
                arrays[name] = np.lib.format.read_array(entry, allow_pickle=False)
        return arrays


def _check_entry(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> int:
    """Bytes of an array, from its header; its type and size must be possible."""
    with archive.open(info) as entry:
        version = np.lib.format.read_magic(entry)
        if version not in ((1, 0), (2, 0)):
            raise HomingError(f"{name} has the unknown npy version {version}")
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(entry)
        begin = entry.tell()
    size = math.prod(shape) * dtype.itemsize
    if name == NOTES:
        if dtype.kind != "U" or shape != () or size > 4 * MAX_NOTES:
            raise HomingError(f"{name} must be one short text")
    elif dtype.kind not in "fiub":
        raise HomingError(f"{name} holds {dtype}, not numbers; pickled objects are not read")
    if info.file_size != begin + size or info.file_size > MAX_RATIO * info.compress_size + PIECE:
        raise HomingError(f"{name} is not as large as its header says")
    return size
