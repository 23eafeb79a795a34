"""Goals that change inside an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import Arena
from homing.envs.tasks.base import Task, next_goal, point_distances
from homing.types import Array, Key

# Candidate goals; the first that is not reached yet is used.
CANDIDATES = 8


@dataclass(frozen=True)
class GoalOptions:
    """When a new goal is commanded.

    renew: inside of an episode, every so many steps or "reached": as soon as the goal is reached; None: never
    """

    renew: int | Literal["reached"] | None = None

    def __post_init__(self) -> None:
        bounds.check(self)

    def due(self, steps: Array, success: Array) -> Array:
        """Which environments get a new goal, bool [N], after `steps` [N] of their episodes."""
        if self.renew == "reached":
            return success > 0
        return jnp.zeros(steps.shape, bool) if self.renew is None else steps % self.renew == 0


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
