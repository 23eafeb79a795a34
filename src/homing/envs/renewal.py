"""Goals that change inside an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import Arena
from homing.envs.tasks.base import Task, next_goal, point_distances
from homing.errors import ConfigError, shown
from homing.types import Array, Key

# Candidate goals; the first that is not reached yet is used.
CANDIDATES = 8
RENEWAL = "goals."
"""Prefix of the settings of new goals inside of an episode."""


@dataclass(frozen=True)
class GoalOptions:
    """When a new goal is commanded.

    renew: inside of an episode, every so many steps or "reached": when the goal is reached; None: never
    hold:  steps at the goal, on average, until "reached" commands the next one; 1: at once
    split: a new goal ends an episode for replay: relabelled goals, and the times until they are reached, are those of
           steps with the same commanded goal. The robot itself goes on.
    """

    renew: int | Literal["reached"] | None = None
    hold: int = 1
    split: bool = False

    def __post_init__(self) -> None:
        bounds.check(self)

    def check(self) -> None:
        """Refuse options that do not go together; they are set one by one."""
        if self.hold > 1 and self.renew != "reached":
            raise ConfigError(f"goals.hold={self.hold} needs goals.renew=reached, not {shown(self.renew)}")
        if self.split and self.renew is None:
            raise ConfigError(
                "goals.split=true needs goals that change: goals.renew=reached, or a number of steps"
            )

    @property
    def split_when_reached(self) -> bool:
        """Whether an episode of replay ends with the first step that reaches its goal."""
        return self.split and self.renew == "reached" and self.hold == 1

    def due(self, key: Key, steps: Array, success: Array) -> Array:
        """Which environments get a new goal, bool [N], after `steps` [N] of their episodes."""
        if self.renew is None:
            return jnp.zeros(steps.shape, bool)
        if self.renew != "reached":
            return steps % self.renew == 0
        reached = success > 0
        return reached & jax.random.bernoulli(key, 1 / self.hold, steps.shape) if self.hold > 1 else reached


def without_renewal(env_options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an environment but for those of new goals inside of an episode."""
    return {name: value for name, value in env_options.items() if not name.startswith(RENEWAL)}


def next_goals(task: Task, arena: Arena, key: Key, achieved: Array) -> Array:
    """New goals [N, goal_dim] for robots under way, which have achieved [N, goal_dim].

    A goal that is already reached is drawn again; where the task has no other, it stays.
    """

    def one(key: Key, achieved: Array) -> Array:
        keys = jax.random.split(key, CANDIDATES)
        goals = jax.vmap(lambda k: next_goal(task, k, arena, achieved))(keys)
        distance = jnp.max(point_distances(achieved, goals, task.parts), axis=-1)
        return goals[jnp.argmax(distance >= task.within)]

    return jax.vmap(one)(jax.random.split(key, len(achieved)), achieved)
