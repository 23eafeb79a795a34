"""Runs from the start, or from where they stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from homing.config.run import RunConfig
from homing.runs.folder import RunFolder
from homing.runs.progress import Progress
from homing.training.build import Parts, build
from homing.training.members import members_of
from homing.training.population import joined_parts
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
    folder = RunFolder(out)
    if is_first():
        folder.check_new()
    with folder.held() if is_first() else contextlib.nullcontext():
        if is_first():
            folder.check_new()
            folder.write_config(config)
        return Run(members_of([(folder, config)]), parts, show, folder.path, placement).go()


def resume(
    path: str | Path, show: Progress, placement_of: Callable[[Parts], Placement | None] | None = None
) -> Outcome:
    """Go on with a run that was stopped or killed; one that is finished is left alone.

    `placement_of` makes the placement on devices from the run's config and parts.
    """
    folder = RunFolder.existing(path)
    with folder.held() if is_first() else contextlib.nullcontext():
        if folder.summary() is not None:
            show.say(f"{folder.path} is finished; nothing is left to do")
            return Outcome(folder.path, "finished")
        folder.check_alone()
        config = folder.config()
        parts = build(config)
        placement = placement_of(parts) if placement_of is not None else None
        return Run(members_of([(folder, config)]), parts, show, folder.path, placement).go()


def start_or_resume(
    runs: Sequence[tuple[RunFolder, RunConfig]], home: Path, show: Progress, go_on: str
) -> Outcome:
    """A population from where it is; the caller has made its folders. `go_on` is the command for it."""
    with contextlib.ExitStack() as stack:
        for folder, _ in runs:
            stack.enter_context(folder.held())
        parts = joined_parts([config for _, config in runs])
        return Run(members_of(runs), parts, show, home, go_on=go_on).go()


__all__ = ["Outcome", "resume", "start", "start_or_resume"]
