"""Planning of a study: which runs train together as one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from homing.agents import make_agent
from homing.config.plan import Schedule, human_bytes
from homing.config.run import RunConfig
from homing.errors import ConfigError
from homing.studies import speeds
from homing.studies.points import Point, part_of
from homing.studies.programs import Machine, Program, StudyPlan
from homing.training.build import Parts, build, check_together
from homing.training.population import can_vary, differing, shape_of
from homing.types import bytes_of


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
        for point in alike:
            check_together(point.config, parts.env, make_agent(point.config.settings, parts.env.spec))
        for group in _by_fixed_values(alike, parts):
            programs += _fitted(group, parts, machine, population)
    order = {program.id: program.seconds(speeds.known(machine.device)) for program in programs}
    programs.sort(key=lambda program: -(order[program.id] or (0.0,))[0])  # long ones first
    return StudyPlan(tuple(programs), machine)


class _Builder:
    """`build` with a cache for runs that differ in the agent's settings only, since tracing one takes a second."""

    def __init__(self) -> None:
        self._made: dict[str, Parts] = {}

    def __call__(self, config: RunConfig) -> Parts:
        key = repr(
            [
                getattr(config, name)
                for name in ("agent", "env", "eval_env", "episode_length", "physics", "reward", "env_options")
            ]
            + [config.train, getattr(config.settings, "chunk", 1)]
        )
        if key not in self._made:
            self._made[key] = build(config)
        known = self._made[key]
        agent = make_agent(config.settings, known.env.spec)
        learner = bytes_of(jax.eval_shape(agent.init, jax.random.key(0)))
        sizes = dataclasses.replace(known.plan.sizes, learner_bytes=learner)
        plan = dataclasses.replace(known.plan, sizes=sizes)
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
    return [part_of(point, seeds[first : first + limit]) for first in range(0, len(seeds), limit)]


def _program(points: Sequence[Point], plan: Schedule) -> Program:
    seeds = sum(len(point.config.seeds) for point in points)
    return Program(tuple(points), dataclasses.replace(plan, seeds=seeds))
