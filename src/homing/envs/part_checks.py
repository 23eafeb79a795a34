"""Checks of the parts of an environment, made where users hand in their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homing.bounds import check_value
from homing.envs.arenas import Arena
from homing.envs.bodies.base import Body, Commanded, check_healthy
from homing.envs.scene import EnvSpec
from homing.envs.tasks.base import Task
from homing.errors import ConfigError, shown, unknown

METRICS = ("distance", "success", "points_reached")
"""Metrics of a step, which a margin would replace."""


def check_spec(spec: EnvSpec) -> None:
    """Refuse an environment with a part of the wrong kind, or with a setting that all parts of a kind have."""
    _check_part("body", spec.body, Commanded if hasattr(spec.body, "command") else Body)
    _check_part("task", spec.task, Task)
    _check_part("arena", spec.arena, Arena)
    check_healthy(spec.body.healthy)
    _check_pipelines(spec)
    _check_names("goal", spec.task.goal)
    _check_names("hand", spec.task.hand)
    _check_points(spec.task)
    _check_thresholds(spec.task)


def _check_part(kind: str, part: Any, interface: type) -> None:
    """Refuse a class in place of an instance, and a part that lacks something of its kind."""
    if isinstance(part, type):
        raise ConfigError(
            f"the {kind} is the class {part.__name__}; give an instance of it, {part.__name__}(...)"
        )
    missing = [name for name in _members(interface) if not hasattr(part, name)]
    if missing:
        article = "an" if kind == "arena" else "a"
        raise ConfigError(
            f"{shown(part)} is not {article} {kind}: it has no {' and no '.join(missing[:2])}; "
            f"an environment is made of a body, a task and an arena, in this order"
        )


def _members(interface: type) -> list[str]:
    """Public names that a protocol and those that it extends declare."""
    return [name for base in interface.__mro__ for name in vars(base) if not name.startswith("_")]


def _check_pipelines(spec: EnvSpec) -> None:
    for name in spec.physics:
        if not isinstance(name, str) or name not in spec.body.pipelines:
            raise unknown(f"physics pipeline of {spec.body.name}", name, spec.body.pipelines)


def _check_names(field: str, names: Any) -> None:
    if isinstance(names, str):
        raise ConfigError(
            f"the task's {field} is a tuple of state entries, ({names!r},), not the text {names!r}"
        )
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"the task's {field} is a tuple of names of state entries, not {shown(names)}")


def _check_points(task: Task) -> None:
    parts, entries = task.parts, len(task.goal)
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1 or entries < 1 or entries % parts:
        raise ConfigError(
            f"the task's goal has {entries} entries, which {shown(parts)} points of equal size cannot share"
        )


def _check_thresholds(task: Task) -> None:
    check_value("within", task.within)
    margins: Any = task.margins
    if not isinstance(margins, Mapping) or not all(isinstance(name, str) for name in margins):
        raise ConfigError(
            f"margins are thresholds by name, such as {{'success_easy': 1.0}}, not {shown(margins)}"
        )
    for name, threshold in margins.items():
        if name in METRICS:
            raise ConfigError(f"{name!r} is a metric of every task; give this margin another name")
        check_value("within", threshold, label=f"margin {name!r}")
