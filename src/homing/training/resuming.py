"""Before a run goes on: its checkpoints and its folders are compared, and what differs is said or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from homing.errors import HomingError
from homing.runs.checkpoints import Checkpoints, Found
from homing.runs.folder import CONFIG, RunFolder
from homing.runs.record import HARMLESS, FolderRecord, changed_settings, check_settings
from homing.training.members import Member

Warn = Callable[[str], None]

NOTED = ("elapsed", "tally", "folders")
"""What a run notes in a checkpoint, beside its arrays."""


def checkpoints_to_resume(
    checkpoints: Checkpoints,
    members: Sequence[Member],
    warn: Warn,
    accept_changes: bool = False,
    accept_command: str | None = None,
) -> list[Found]:
    """Checkpoints to go on from, newest first; none at the start of a run.

    accept_changes: go on with edited settings, or from the start where all checkpoints are lost
    accept_command: the command that does so, for the message; None where it is not possible
    """
    found = checkpoints.found(warn)
    for member in members:
        if not found and not accept_changes:
            member.check_checkpoints(accept_command)
        # What cannot be read is found before anything is compiled.
        member.folder.sessions()
        member.folder.rows()
    if found:
        _check_settings(members, records_of(found[0], members), warn, accept_changes, accept_command)
    return found


def records_of(found: Found, members: Sequence[Member]) -> list[FolderRecord]:
    """The folders of the runs at a checkpoint."""
    records = found.notes["folders"]
    if not isinstance(records, list) or len(records) != len(members):
        raise HomingError(
            f"the checkpoint {found.path} does not belong to this program of {len(members)} runs; "
            "put the right one back from a copy"
        )
    return [FolderRecord.read(record, found.path) for record in records]


def _check_settings(
    members: Sequence[Member],
    records: Sequence[FolderRecord],
    warn: Warn,
    accept_changes: bool,
    accept_command: str | None,
) -> None:
    for member, record in zip(members, records, strict=True):
        where = str(member.folder.path / CONFIG)
        changes = changed_settings(record.config, member.config)
        for change in check_settings(changes, where, accept_changes, accept_command):
            warn(f"{where} was changed since the last checkpoint: {change}")
            member.notes.setdefault("accepted_changes", []).append(str(change))


def record_at_end(folder: RunFolder) -> FolderRecord | None:
    """What the last checkpoint of a finished run records; None where none is left from which it could go on."""
    try:
        found = Checkpoints(folder.path / "checkpoints", 1, NOTED).found(lambda _: None)
        records = found[0].notes["folders"] if found else []
        return FolderRecord.read(records[0], found[0].path) if len(records) == 1 else None
    except HomingError:
        return None


def is_edited(folder: RunFolder, record: FolderRecord) -> bool:
    """Whether settings that decide what is learned are not those of a checkpoint."""
    changes = changed_settings(record.config, folder.config())
    return any(not change.name.startswith(HARMLESS) for change in changes)
