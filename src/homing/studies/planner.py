"""Which runs of a study train together, and what that takes: programs, time, memory and disk."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from homing.agents import make_agent
from homing.config.offpolicy import Plan, human_bytes
from homing.config.run import RunConfig
from homing.errors import ConfigError
from homing.runs.progress import human_count, human_time
from homing.studies import speeds
from homing.studies.points import Point
from homing.training.build import Parts, build
from homing.training.population import can_vary, differing, shape_of
from homing.types import bytes_of

# A policy file and the metrics of a seed, roughly, beside what the learner weighs.
METRICS_BYTES_PER_ROW = 1_000
POLICY_FILES = 2


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a program will run on."""

    device: str
    free_bytes: int | None
    workers: int = 1


@dataclasses.dataclass(frozen=True)
class Program:
    """Runs that share shapes, trained as one."""

    points: tuple[Point, ...]
    plan: Plan
    """For all their seeds together."""

    @property
    def id(self) -> str:
        names = [point.name for point in self.points]
        mark = hashlib.sha256("\n".join(names).encode()).hexdigest()[:6]
        more = f"+{len(names) - 1}" if len(names) > 1 else ""
        return f"{names[0][:80]}{more}-{mark}"

    @property
    def seeds(self) -> int:
        return self.plan.seeds

    @property
    def values(self) -> list[str]:
        """Settings that differ inside the program."""
        return differing([point.config for point in self.points])

    @property
    def checkpoint_bytes(self) -> int:
        """At most on disk at once: an old one stays until the new one is whole."""
        parts = self.plan.bytes_by_part
        each = sum(parts.get(name, 0) for name in ("replay", "learner", "environments"))
        return (self.points[0].config.save.keep_checkpoints + 1) * each * self.seeds

    @property
    def result_bytes(self) -> int:
        """What stays: policies (parameters are a third of what an Adam learner holds) and metrics."""
        policies = POLICY_FILES * self.plan.bytes_by_part["learner"] // 3
        return self.seeds * (policies + METRICS_BYTES_PER_ROW * self.plan.epochs)

    def seconds(self, entries: Sequence[dict[str, Any]]) -> tuple[float, str] | None:
        """How long it takes, and whether that was measured or estimated from something like it."""
        found = speeds.nearest(entries, self.points[0].config, self.seeds)
        if found is None:
            return None
        entry, kind = found
        steps = self.seeds * self.plan.total_steps
        evaluations = self.plan.epochs * entry["evaluation_seconds"] * self.seeds / entry["seeds"]
        return steps / entry["steps_per_second"] + evaluations, kind


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """The programs of a study, in the order in which they start, and what they take in all."""

    programs: tuple[Program, ...]
    machine: Machine

    @property
    def runs(self) -> int:
        return sum(len(program.points) for program in self.programs)

    @property
    def seeds(self) -> int:
        return sum(program.seeds for program in self.programs)

    @property
    def steps(self) -> int:
        return sum(program.seeds * program.plan.total_steps for program in self.programs)

    @property
    def memory(self) -> int:
        return max((program.plan.bytes_in_all for program in self.programs), default=0)

    @property
    def disk(self) -> int:
        """Results of all, and the checkpoints of as many of the largest as run at once."""
        largest = sorted((program.checkpoint_bytes for program in self.programs), reverse=True)
        return sum(program.result_bytes for program in self.programs) + sum(largest[: self.machine.workers])

    def told(self) -> dict[str, Any]:
        """All of it as plain values."""
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
        """Each program and what of it differs inside."""
        told = []
        for program in self.programs:
            together = f", {len(program.points)} runs that differ in {', '.join(program.values)}"
            told.append(f"{program.id}: {program.seeds} seeds{together if len(program.points) > 1 else ''}")
        return "\n".join(told)

    def __str__(self) -> str:
        told = self.told()
        free = "" if told["free_bytes"] is None else f" of {human_bytes(told['free_bytes'])}"
        return "\n".join(
            [
                f"{told['programs']} programs train {told['runs']} runs with {told['seeds']} seeds in all, "
                f"{human_count(told['steps'])} steps",
                f"time     {_time_line(told)}",
                f"memory   up to {human_bytes(told['memory_bytes'])}{free} on {told['device']}",
                f"disk     up to {human_bytes(told['disk_bytes'])}",
            ]
        )


def _time_line(told: dict[str, Any]) -> str:
    if told["seconds"] is None:
        return (
            "not known: nothing like it was measured on this device; `homing study plan --measure` measures"
        )
    how = "estimated from runs like these" if told["estimated"] else "from measured speeds"
    missing = told["programs_without_time"]
    rest = f", without {missing} programs that nothing is known of" if missing else ""
    workers = f" with {told['workers']} workers" if told["workers"] > 1 else ""
    return f"{human_time(told['seconds'])}{workers} ({how}, compilation excluded{rest})"


def _wall(seconds: Sequence[float], workers: int) -> float:
    """Time until the last is done if the longest start first."""
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
    """Group runs that share shapes, as many of them as the memory holds; `population` limits their seeds."""
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
    """`build`, with an environment made once for all runs in it: tracing one takes a second."""

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
    """Apart where a value that differs decides how the program is built."""
    names = differing([point.config for point in points])
    fixed = [name for name in names if not can_vary(points[0].config, parts, name)]
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        key = tuple(getattr(point.config.settings, name) for name in fixed)
        groups.setdefault(key, []).append(point)
    return list(groups.values())


def _fitted(points: Sequence[Point], parts: Parts, machine: Machine, population: int | None) -> list[Program]:
    """Programs of no more seeds than fit; a run whose seeds do not fit together is cut."""
    room = _most_seeds(points[0].config, parts.plan, machine)
    limit = min(limit for limit in (room, population, 1_000_000) if limit is not None)
    pieces = [piece for point in points for piece in _cut(point, limit)]
    programs, group, seeds = [], [], 0
    for piece in pieces:
        count = len(piece.config.seeds)
        if group and seeds + count > limit:
            programs.append(_program(group, parts.plan))
            group, seeds = [], 0
        group, seeds = [*group, piece], seeds + count
    return [*programs, _program(group, parts.plan)]


def _most_seeds(config: RunConfig, plan: Plan, machine: Machine) -> int | None:
    if machine.free_bytes is None:
        return None
    room = machine.free_bytes // plan.bytes_per_seed
    if room < 1:
        raise ConfigError(
            f"one seed of {config.agent} on {config.env} needs {human_bytes(plan.bytes_per_seed)} and "
            f"{machine.device} has {human_bytes(machine.free_bytes)}; lower num_envs or replay_size with "
            "--set, or take --scale"
        )
    return room


def _cut(point: Point, limit: int) -> list[Point]:
    """A run as it is, or in parts of so many seeds, each with a folder of its own."""
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


def _program(points: Sequence[Point], plan: Plan) -> Program:
    seeds = sum(len(point.config.seeds) for point in points)
    return Program(tuple(points), dataclasses.replace(plan, seeds=seeds))
