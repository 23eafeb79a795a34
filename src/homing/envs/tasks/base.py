"""The task interface."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from flax import struct

from homing.envs.arenas import Arena
from homing.envs.goals import Relative
from homing.envs.tasks.props import Prop
from homing.types import Array, Key


class TaskSample(struct.PyTreeNode):
    """Goal and initial positions of one episode.

    goal:  [goal_dim]
    start: [2] position of the robot's root; None keeps the body's own
    props: [·] coordinates of the task's objects, concatenated
    """

    goal: Array
    start: Array | None
    props: Array


class Task(Protocol):
    """A goal space, and the sampling of goals, starts and objects.

    goal:   names of the state entries that form the achieved goal
    within: success threshold on the distance to the goal
    props:  objects that the task adds to the model
    """

    @property
    def name(self) -> str: ...
    @property
    def goal(self) -> tuple[str, ...]: ...
    @property
    def within(self) -> float: ...
    @property
    def margins(self) -> Mapping[str, float]:
        """Further success thresholds by metric name; reported, not rewarded."""
        ...

    @property
    def props(self) -> tuple[Prop, ...]: ...

    @property
    def parts(self) -> int:
        """Number of points in a goal, all of which must be reached."""
        ...

    @property
    def hand(self) -> tuple[str, ...]:
        """State entries of the end effector in the dense reward's hand-to-object term; empty for none."""
        ...

    def draw(self, key: Key, arena: Arena) -> TaskSample:
        """Sample one episode."""
        ...


@runtime_checkable
class FromAchieved(Protocol):
    """A task whose goals inside of an episode follow from the achieved goal."""

    def goal_from(self, achieved: Array) -> Array:
        """The next goal [goal_dim] for a robot that has achieved [goal_dim]."""
        ...


def point_distances(achieved: Array, goal: Array, parts: int) -> Array:
    """Distance to each point of the goal, [..., parts]."""
    size = goal.shape[-1] // parts
    squares = jnp.square(achieved - goal).reshape(*goal.shape[:-1], parts, size)
    # A sum of two or three terms is arithmetic that XLA fuses with what follows; a reduction is a pass over memory.
    return jnp.sqrt(functools.reduce(jnp.add, (squares[..., i] for i in range(size))))


def next_goal(task: Task, key: Key, arena: Arena, achieved: Array) -> Array:
    """A goal [goal_dim] of the task's distribution for a robot under way, which has achieved [goal_dim]."""
    if isinstance(task, FromAchieved):
        return task.goal_from(achieved)
    goals = getattr(task, "goals", None)
    if isinstance(goals, Relative):
        return goals.draw_from(key, arena, achieved[:2])
    return task.draw(key, arena).goal
