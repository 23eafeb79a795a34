"""What a checkpoint records of its run's folder, and how the folder differs from that when the run is resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from homing.config.run import RunConfig, from_json, to_json
from homing.errors import ConfigError, HomingError
from homing.runs.folder import Row
from homing.runs.strict_json import flat

FIXED = ("agent", "seeds", "init_from")
"""Settings that name what a checkpoint holds and began with: with others it would be another run."""
HARMLESS = "save."
"""Settings that decide what is written, not what is learned."""


class RowDigest:
    """Number and digest of the rows of a metrics file, kept up to date as rows are added."""

    def __init__(self, rows: Iterable[Row] = ()):
        self.count = 0
        self._hash = hashlib.sha256()
        self.add(rows)

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._hash.update(json.dumps(row, sort_keys=True).encode() + b"\n")
            self.count += 1

    @property
    def hex(self) -> str:
        return self._hash.hexdigest()


@dataclasses.dataclass(frozen=True)
class FolderRecord:
    """One run's folder at a checkpoint: plain values, since the checkpoint keeps them as JSON."""

    config: Mapping[str, Any]
    rows: int
    """Rows of metrics up to the checkpoint's iteration."""
    rows_digest: str
    best: float | None
    """Score of policies/best.safetensors; None before the first evaluation."""
    diverged: Sequence[int]

    @classmethod
    def read(cls, content: Any, checkpoint: Path) -> FolderRecord:
        """From the notes of a checkpoint."""
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(content, Mapping) or set(content) != set(names):
            raise HomingError(
                f"the notes of the checkpoint {checkpoint} must have {', '.join(names)} for each run; "
                "put the checkpoint back from a copy"
            )
        return cls(**content)


def plain_settings(config: RunConfig) -> dict[str, Any]:
    """The content of config.json."""
    return json.loads(json.dumps(to_json(config)))


def config_digest(config: RunConfig) -> str:
    return hashlib.sha256(json.dumps(plain_settings(config), sort_keys=True).encode()).hexdigest()


class Change(NamedTuple):
    """A setting that is not what it was at the checkpoint."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.name} was {json.dumps(self.old)} and is {json.dumps(self.new)}"


def changed_settings(saved: Mapping[str, Any], config: RunConfig) -> list[Change]:
    """Settings that differ, by their path in config.json."""
    with contextlib.suppress(HomingError, KeyError, TypeError):
        saved = plain_settings(from_json(saved))  # settings that are newer than the run have their defaults
    old, new = flat(saved), flat(plain_settings(config))
    names = dict.fromkeys([*old, *new])
    return [Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def check_settings(
    changes: Sequence[Change], where: str, accept: bool, accept_command: str | None
) -> list[Change]:
    """The changes that a run goes on with, which are none unless they are accepted or harmless."""
    learning = [change for change in changes if not change.name.startswith(HARMLESS)]
    fixed = [change for change in learning if change.name in FIXED]
    listed = "; ".join(map(str, fixed or learning))
    if fixed:
        raise ConfigError(
            f"{where} was changed since the last checkpoint: {listed}. A run cannot change these: put them back, "
            "or start another run with `homing train`"
        )
    if learning and not accept:
        way = f", or continue with the changes: {accept_command}" if accept_command else ""
        raise ConfigError(f"{where} was changed since the last checkpoint: {listed}. Put it back{way}")
    return list(changes)


def row_differences(
    rows: Sequence[Row], record: FolderRecord, evaluations: Sequence[int], seeds: Sequence[int]
) -> str | None:
    """How rows of metrics up to a checkpoint differ from those that were written; None if they do not.

    evaluations: iterations up to the checkpoint at which every seed has a row
    """
    found = RowDigest(rows)
    if (found.count, found.hex) == (record.rows, record.rows_digest):
        return None
    if found.count == record.rows:
        return f"has all {record.rows} rows up to the checkpoint, but they are not as they were written"
    there = {(row["iteration"], row["seed"]) for row in rows}
    lost = [i for i in evaluations if any((i, seed) not in there for seed in seeds)]
    which = f" (those of iterations {_listed(lost)})" if lost else ""
    return f"has {found.count} of the {record.rows} rows that were written up to the checkpoint{which}"


def _listed(numbers: Sequence[int], shown: int = 8) -> str:
    if len(numbers) <= shown:
        return ", ".join(map(str, numbers))
    half = shown // 2
    return f"{', '.join(map(str, numbers[:half]))}, …, {', '.join(map(str, numbers[-half:]))}"
