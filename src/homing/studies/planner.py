"""Planning of a study: which runs train together as one program, and their time, memory and disk use."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from homing.agents import make_agent
from homing.config.plan import Schedule, human_bytes
from homing.config.run import RunConfig
from homing.errors import ConfigError
from homing.runs.progress import human_count, human_time
from homing.studies import speeds
from homing.studies.points import Point
from homing.training.build import Parts, build
from homing.training.population import can_vary, differing, shape_of
from homing.types import bytes_of

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
            "seconds": _wall([time[0] for time in known], self.machine.workers) if known else None,
            "programs_without_time": len(times) - len(known),
            "estimated": any(kind == "estimated" for _, kind in known),
            "each": [
                {
                    "id": program.id,
                    "runs": [point.name for point in program.points],
                    "together": program.values,
                    "seeds": program.seeds,
                    "steps": program.plan.total_steps,
                    "memory_bytes": program.plan.bytes_in_all,
                    "seconds": None if time is None else time[0],
                }
                for program, time in zip(self.programs, times, strict=True)
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
                f"time     {_time_line(summary)}",
                f"memory   up to {human_bytes(summary['memory_bytes'])}{free} on {summary['device']}",
                f"disk     up to {human_bytes(summary['disk_bytes'])}",
            ]
        )


def _time_line(summary: dict[str, Any]) -> str:
    if summary["seconds"] is None:
        return "unknown: no measurements on this device; measure with `homing study plan --measure`"
    how = "estimated from similar runs" if summary["estimated"] else "from measured speeds"
    missing = summary["programs_without_time"]
    rest = f", without {missing} programs of unknown speed" if missing else ""
    workers = f" with {summary['workers']} workers" if summary["workers"] > 1 else ""
    return f"{human_time(summary['seconds'])}{workers} ({how}, compilation excluded{rest})"


def _wall(seconds: Sequence[float], workers: int) -> float:
    """Makespan of a greedy schedule, longest first."""
    ends = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        ends[ends.index(min(ends))] += each
    return max(ends)


def plan(
    points: Sequence[Point],
    machine: Machine,
    population: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> StudyPlan:
    """Group runs of the same shapes into programs that fit into memory; `population` limits their seeds."""
    shapes: dict[str, list[Point]] = {}
    for point in points:
        shapes.setdefault(repr(shape_of(point.config)), []).append(point)
    programs: list[Program] = []
    builder = _Builder()
    for i, alike in enumerate(shapes.values(), start=1):
        say(f"planning {i} of {len(shapes)}")
        parts = builder(alike[0].config)
        for group in _by_fixed_values(alike, parts):
            programs += _fitted(group, parts, machine, population)
    order = {program.id: program.seconds(speeds.known(machine.device)) for program in programs}
    programs.sort(key=lambda program: -(order[program.id] or (0.0,))[0])  # long ones first
    return StudyPlan(tuple(programs), machine)


class _Builder:
    """`build` with a cache of environments, since tracing one takes a second."""

    def __init__(self) -> None:
        self._made: dict[str, Parts] = {}

    def __call__(self, config: RunConfig) -> Parts:
        key = repr(
            [
                getattr(config, name)
                for name in ("agent", "env", "eval_env", "episode_length", "physics", "env_options")
            ]
            + [config.train.num_envs, config.train.eval_envs]
        )
        if key not in self._made:
            self._made[key] = build(config)
        known = self._made[key]
        agent = make_agent(config.settings, known.env.spec)
        learner = bytes_of(jax.eval_shape(agent.init, jax.random.key(0)))
        sizes = dataclasses.replace(known.plan.sizes, learner_bytes=learner)
        plan = dataclasses.replace(known.plan, config=config.train, sizes=sizes)
        return known._replace(agent=agent, plan=plan)


def _by_fixed_values(points: Sequence[Point], parts: Parts) -> list[list[Point]]:
    """Split points whose differing settings must be static in a program."""
    names = differing([point.config for point in points])
    fixed = [name for name in names if not can_vary(points[0].config, parts, name)]
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        key = tuple(getattr(point.config.settings, name) for name in fixed)
        groups.setdefault(key, []).append(point)
    return list(groups.values())


def _fitted(points: Sequence[Point], parts: Parts, machine: Machine, population: int | None) -> list[Program]:
    """Programs with at most as many seeds as fit; runs with more seeds are split."""
    room = _most_seeds(points[0].config, parts.plan, machine)
    limit = min(limit for limit in (room, population, 1_000_000) if limit is not None)
    pieces = [piece for point in points for piece in _split(point, limit)]
    programs, group, seeds = [], [], 0
    for piece in pieces:
        count = len(piece.config.seeds)
        if group and seeds + count > limit:
            programs.append(_program(group, parts.plan))
            group, seeds = [], 0
        group, seeds = [*group, piece], seeds + count
    return [*programs, _program(group, parts.plan)]


def _most_seeds(config: RunConfig, plan: Schedule, machine: Machine) -> int | None:
    if machine.free_bytes is None:
        return None
    room = machine.free_bytes // plan.bytes_per_seed
    if room < 1:
        raise ConfigError(
            f"one seed of {config.agent} on {config.env} needs {human_bytes(plan.bytes_per_seed)} and "
            f"{machine.device} has {human_bytes(machine.free_bytes)}; lower num_envs or replay_size with "
            "--set, or use --scale"
        )
    return room


def _split(point: Point, limit: int) -> list[Point]:
    """The run itself, or parts of at most `limit` seeds, each with its own folder."""
    seeds = point.config.seeds
    if len(seeds) <= limit:
        return [point]
    parts = [seeds[first : first + limit] for first in range(0, len(seeds), limit)]
    return [
        Point(
            point.labels,
            f"{point.name}.seeds_{part[0]}-{part[-1]}",
            dataclasses.replace(point.config, seeds=part),
        )
        for part in parts
    ]


def _program(points: Sequence[Point], plan: Schedule) -> Program:
    seeds = sum(len(point.config.seeds) for point in points)
    return Program(tuple(points), dataclasses.replace(plan, seeds=seeds))
