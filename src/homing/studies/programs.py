"""The programs of a study, and the time, memory and disk that they need."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from homing.config.plan import Schedule, human_bytes
from homing.runs.progress import human_count, human_time
from homing.studies import reference, speeds
from homing.studies.points import Point
from homing.training.population import differing

# Rough sizes of a seed's metrics and policy files.
METRICS_BYTES_PER_ROW = 1_000
POLICY_FILES = 2


@dataclasses.dataclass(frozen=True)
class Machine:
    """The device that programs will run on."""

    device: str
    free_bytes: int | None
    workers: int = 1


@dataclasses.dataclass(frozen=True)
class Program:
    """Runs of the same shapes, trained as one compiled program."""

    points: tuple[Point, ...]
    plan: Schedule
    """The plan for the seeds of all runs."""

    @property
    def id(self) -> str:
        """A readable, unique name."""
        names = [point.name for point in self.points]
        mark = hashlib.sha256("\n".join(names).encode()).hexdigest()[:6]
        more = f"+{len(names) - 1}" if len(names) > 1 else ""
        return f"{names[0][:80]}{more}-{mark}"

    @property
    def seeds(self) -> int:
        """Total number of seeds."""
        return self.plan.seeds

    @property
    def values(self) -> list[str]:
        """Settings that differ inside the program."""
        return differing([point.config for point in self.points])

    @property
    def checkpoint_bytes(self) -> int:
        """Peak bytes of checkpoints on disk; an old one is kept until the new one is complete."""
        parts = self.plan.bytes_by_part
        each = sum(parts.get(name, 0) for name in ("replay", "learner", "environments"))
        return (self.points[0].config.save.keep_checkpoints + 1) * each * self.seeds

    @property
    def result_bytes(self) -> int:
        """Bytes of the results: policies (a third of a learner with Adam) and metrics."""
        policies = POLICY_FILES * self.plan.bytes_by_part["learner"] // 3
        return self.seeds * (policies + METRICS_BYTES_PER_ROW * self.plan.epochs)

    def seconds(self, entries: Sequence[dict[str, Any]]) -> tuple[float, str] | None:
        """Duration, and whether it is measured or estimated from a similar program; None if unknown."""
        found = speeds.nearest(entries, self.points[0].config, self.seeds)
        if found is None:
            return None
        entry, kind = found
        steps = self.seeds * self.plan.total_steps
        evaluations = self.plan.epochs * entry["evaluation_seconds"] * self.seeds / entry["seeds"]
        return steps / entry["steps_per_second"] + evaluations, kind

    def reference_seconds(self) -> float | None:
        """Rough duration on the device of the reference table; None if unknown."""
        return reference.seconds(self.points[0].config, self.plan, self.seeds)


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """The programs of a study in the order of execution, and their total cost."""

    programs: tuple[Program, ...]
    machine: Machine

    @property
    def runs(self) -> int:
        """Total number of runs."""
        return sum(len(program.points) for program in self.programs)

    @property
    def seeds(self) -> int:
        """Total number of seeds."""
        return sum(program.seeds for program in self.programs)

    @property
    def steps(self) -> int:
        """Total number of environment steps."""
        return sum(program.seeds * program.plan.total_steps for program in self.programs)

    @property
    def memory(self) -> int:
        """Bytes of the largest program."""
        return max((program.plan.bytes_in_all for program in self.programs), default=0)

    @property
    def disk(self) -> int:
        """Bytes of all results, and of the largest checkpoints that can exist at the same time."""
        largest = sorted((program.checkpoint_bytes for program in self.programs), reverse=True)
        return sum(program.result_bytes for program in self.programs) + sum(largest[: self.machine.workers])

    def summary(self) -> dict[str, Any]:
        """The plan as plain values."""
        entries = speeds.known(self.machine.device)
        times = [program.seconds(entries) for program in self.programs]
        known = [time for time in times if time is not None]
        rough = [program.reference_seconds() for program in self.programs]
        return {
            "programs": len(self.programs),
            "runs": self.runs,
            "seeds": self.seeds,
            "steps": self.steps,
            "device": self.machine.device,
            "workers": self.machine.workers,
            "memory_bytes": self.memory,
            "free_bytes": self.machine.free_bytes,
            "disk_bytes": self.disk,
            **_total([time and time[0] for time in times], self.machine.workers),
            "estimated": any(kind == "estimated" for _, kind in known),
            "reference": {
                "device": reference.table()["device"],
                "files": reference.table()["files"],
                **_total(rough, self.machine.workers),
            },
            "each": [
                {
                    "id": program.id,
                    "runs": [point.name for point in program.points],
                    "together": program.values,
                    "seeds": program.seeds,
                    "steps": program.plan.total_steps,
                    "memory_bytes": program.plan.bytes_in_all,
                    "seconds": None if time is None else time[0],
                    "reference_seconds": seconds,
                }
                for program, time, seconds in zip(self.programs, times, rough, strict=True)
            ],
        }

    def lines(self) -> str:
        """One line per program, with the settings that differ between its runs."""
        lines = []
        for program in self.programs:
            together = f", {len(program.points)} runs that differ in {', '.join(program.values)}"
            lines.append(f"{program.id}: {program.seeds} seeds{together if len(program.points) > 1 else ''}")
        return "\n".join(lines)

    def __str__(self) -> str:
        summary = self.summary()
        free = "" if summary["free_bytes"] is None else f" of {human_bytes(summary['free_bytes'])}"
        return "\n".join(
            [
                f"{summary['programs']} programs train {summary['runs']} runs with {summary['seeds']} seeds, "
                f"{human_count(summary['steps'])} steps",
                *(f"time     {line}" for line in _time_lines(summary)),
                f"memory   up to {human_bytes(summary['memory_bytes'])}{free} on {summary['device']}",
                f"disk     up to {human_bytes(summary['disk_bytes'])}",
            ]
        )

    def by_env(self) -> list[dict[str, Any]]:
        """Counts and device hours of each environment; hours are None where no program's time is known."""
        entries = speeds.known(self.machine.device)
        groups: dict[str, list[Program]] = {}
        for program in self.programs:
            groups.setdefault(program.points[0].config.env, []).append(program)
        return [
            {
                "env": env,
                "programs": len(group),
                "runs": sum(len(program.points) for program in group),
                "seeds": sum(program.seeds for program in group),
                "steps": sum(program.seeds * program.plan.total_steps for program in group),
                "seconds": _sum(time and time[0] for time in (p.seconds(entries) for p in group)),
                "reference_seconds": _sum(program.reference_seconds() for program in group),
            }
            for env, group in groups.items()
        ]


def _total(seconds: Sequence[float | None], workers: int) -> dict[str, Any]:
    known = [each for each in seconds if each is not None]
    return {
        "seconds": _wall(known, workers) if known else None,
        "programs_without_time": len(seconds) - len(known),
    }


def _sum(seconds: Iterable[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if known else None


def _time_lines(summary: dict[str, Any]) -> list[str]:
    """The time on this device, and on the reference device where it is not known here."""
    if summary["seconds"] is not None and not summary["programs_without_time"]:
        return [_time_line(summary)]
    rough = summary["reference"]
    lines = []
    if summary["seconds"] is None:
        lines.append(f"unknown on {summary['device']}; measure it with --measure")
    else:
        lines.append(_time_line(summary))
    if rough["seconds"] is not None:
        where = _devices(rough["device"], summary["workers"])
        lines.append(
            f"about {human_time(rough['seconds'])} on {where} (rough estimate from "
            f"{rough['files'][0]}, without compilation and evaluations{_missing(rough)})"
        )
    return lines


def _time_line(summary: dict[str, Any]) -> str:
    how = "estimated from similar runs" if summary["estimated"] else "from measured speeds"
    where = _devices(summary["device"], summary["workers"])
    return f"{human_time(summary['seconds'])} on {where} ({how}, without compilation{_missing(summary)})"


def _devices(device: str, workers: int) -> str:
    return f"{device} with {workers} workers" if workers > 1 else device


def _missing(summary: dict[str, Any]) -> str:
    missing = summary["programs_without_time"]
    return f", {missing} programs of unknown speed left out" if missing else ""


def _wall(seconds: Sequence[float], workers: int) -> float:
    """Makespan of a greedy schedule, longest first."""
    ends = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        ends[ends.index(min(ends))] += each
    return max(ends)
