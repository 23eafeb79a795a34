"""What remains of a study: the seeds that no program trains, and queued programs that nothing will start."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from homing.studies import claims, cluster
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.studies.points import Point, base_of, part_of

RunSeed = tuple[str, int]
"""Name of a whole run, and one of its seeds."""


def run_seeds(folder: StudyFolder, names: Iterable[str]) -> set[RunSeed]:
    """The seeds of these run folders, each of which may be a part of a run."""
    return {(base_of(name), seed) for name in names for seed in folder.config(name).seeds}


def missing(points: Sequence[Point], taken: Collection[RunSeed]) -> list[Point]:
    """The points with those of their seeds that are not taken; points without any are omitted."""
    left = []
    for point in points:
        seeds = tuple(seed for seed in point.config.seeds if (base_of(point.name), seed) not in taken)
        if seeds:
            left.append(part_of(point, seeds))
    return left


def finished_runs(folder: StudyFolder) -> set[str]:
    """Names of the runs of which every seed is finished."""
    runs = folder.runs()
    open_ = run_seeds(folder, (run.path.name for run in runs)) - run_seeds(
        folder, (run.path.name for run in runs if run.summary() is not None)
    )
    return {base_of(run.path.name) for run in runs} - {name for name, _ in open_}


# Queues.


@dataclasses.dataclass(frozen=True)
class Queued:
    """Programs of a study that something else will start, by ids."""

    workers: Sequence[str] = ()
    """Opened for workers."""
    jobs: Sequence[str] = ()
    """Jobs of Slurm, or of submitit on this machine."""
    is_sure: bool = True
    """Whether Slurm could be asked."""

    @property
    def ids(self) -> set[str]:
        return {*self.workers, *self.jobs}

    def lines(self, folder: StudyFolder) -> list[str]:
        """How many there are, and what starts them."""
        lines = []
        if self.workers:
            lines.append(f"{len(self.workers)} are queued for workers; start one with: {folder.work}")
        if self.jobs:
            lines.append(f"{len(self.jobs)} are queued as jobs: {', '.join(self.jobs)}")
        if not self.is_sure:
            lines.append(
                "squeue is not on this machine, so they count as pending; where their jobs are gone, "
                f"delete state.json of their folders in {folder.path / 'programs'}"
            )
        return lines


def queued(folder: StudyFolder, programs: Sequence[ProgramFolder], executor: str) -> Queued:
    """The queued programs to leave alone; others have lost their job, or wait for this executor."""
    states = {p.id: p.state() for p in programs if folder.status(p) == "queued"}
    workers = [id for id, state in states.items() if state.get("queue") == "workers"]
    jobs = {id: state["job"] for id, state in states.items() if "job" in state}
    pending = cluster.queue(jobs.values()) if jobs else set()
    submitted = [id for id, state in states.items() if jobs.get(id) in pending or _has_controller(state)]
    return Queued([] if executor == "workers" else workers, submitted, not jobs or cluster.has_squeue())


def _has_controller(state: dict[str, Any]) -> bool:
    """Whether the process that starts a local job of submitit is alive on this machine."""
    return state.get("machine") == claims.machine() and claims.exists(state["process"])
