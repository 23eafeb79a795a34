"""Runs from the start, or from where they stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from homing.config.run import RunConfig
from homing.runs.folder import CONFIG, METRICS, RunFolder
from homing.runs.policy_files import INITIAL, policy_path, save_policy
from homing.runs.progress import Progress
from homing.training.build import Parts, build
from homing.training.members import members_of
from homing.training.population import joined_parts
from homing.training.resuming import is_edited, record_at_end
from homing.training.run import Outcome, Run
from homing.training.sharding import Placement, is_first


def start(
    config: RunConfig,
    out: str | Path,
    show: Progress,
    parts: Parts | None = None,
    placement: Placement | None = None,
) -> Outcome:
    """A new run in a new folder."""
    parts = parts or build(config)
    config = dataclasses.replace(config, data=parts.data_file)
    folder = RunFolder(out)
    if is_first():
        folder.check_new()
    with folder.held() if is_first() else contextlib.nullcontext():
        if is_first():
            folder.check_new()
            folder.write_config(config)
            if parts.initial is not None:
                save_policy(policy_path(folder.path, INITIAL), parts.initial, 0)
        return Run(members_of([(folder, config)]), parts, show, folder.path, placement).go()


def resume(
    path: str | Path,
    show: Progress,
    placement_of: Callable[[Parts], Placement | None] | None = None,
    accept_changes: bool = False,
) -> Outcome:
    """Go on with a run that was stopped or killed; one that is finished is left alone unless it was edited.

    placement_of:   makes the placement on devices from the run's parts
    accept_changes: go on with settings that were edited, or from the start where all checkpoints are lost
    """
    folder = RunFolder.existing(path)
    with folder.held() if is_first() else contextlib.nullcontext():
        if (summary := folder.summary()) is not None:
            record = record_at_end(folder)
            if record is None or not is_edited(folder, record):
                _tell_finished(folder, summary, record is not None, show)
                return Outcome(folder.path, "finished")
        folder.check_alone()
        config = folder.config()
        parts = build(config)
        placement = placement_of(parts) if placement_of is not None else None
        members = members_of([(folder, config)])
        return Run(members, parts, show, folder.path, placement, accept_changes=accept_changes).go()


def _tell_finished(folder: RunFolder, summary: dict[str, Any], can_go_on: bool, show: Progress) -> None:
    command = f"homing resume {shlex.quote(str(folder.path))} --accept-changes"
    how = f"; to train longer, raise total_steps in {CONFIG} and call: {command}" if can_go_on else ""
    show.say(f"{folder.path} is finished; nothing is left to do{how}")
    rows = len(folder.rows())
    if rows != summary.get("rows", rows):
        show.warn(f"{folder.path / METRICS} has {rows} rows; at the end of the run it had {summary['rows']}")


def start_or_resume(
    runs: Sequence[tuple[RunFolder, RunConfig]], home: Path, show: Progress, go_on: str
) -> Outcome:
    """Train a population from its last checkpoint, or its start; the caller has made its folders.

    go_on: the command that resumes it
    """
    with contextlib.ExitStack() as stack:
        for folder, _ in runs:
            stack.enter_context(folder.held())
        parts = joined_parts([config for _, config in runs])
        return Run(members_of(runs), parts, show, home, go_on=go_on).go()


__all__ = ["Outcome", "resume", "start", "start_or_resume"]
