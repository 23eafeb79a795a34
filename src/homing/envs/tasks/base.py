"""What an environment asks of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import jax.numpy as jnp
from flax import struct

from homing.envs.arenas import Arena
from homing.envs.tasks.props import Prop
from homing.types import Array, Key


class Draw(struct.PyTreeNode):
    """What one episode is about.

    goal:  [goal_dim]
    start: [2] where the robot's root goes, or None to leave it where its body puts it
    props: [·] coordinates of the task's objects, one after another
    """

    goal: Array
    start: Array | None
    props: Array


class Task(Protocol):
    """A goal space, and how goals, starts and objects are drawn.

    goal:   names of the state entries that must come to equal the goal
    within: how near counts as reached
    props:  objects that the task brings along
    """

    @property
    def name(self) -> str: ...
    @property
    def goal(self) -> tuple[str, ...]: ...
    @property
    def within(self) -> float: ...
    @property
    def margins(self) -> Mapping[str, float]:
        """Further thresholds that are reported, not rewarded."""
        ...

    @property
    def props(self) -> tuple[Prop, ...]: ...

    @property
    def parts(self) -> int:
        """The goal is this many points, all of which must be reached."""
        ...

    @property
    def hand(self) -> tuple[str, ...]:
        """State entries of what should come near the objects, for the dense reward; empty if nothing."""
        ...

    def draw(self, key: Key, arena: Arena) -> Draw: ...


def point_distances(achieved: Array, goal: Array, parts: int) -> Array:
    """[..., parts]: how far each point of the goal is."""
    shape = (*goal.shape[:-1], parts, goal.shape[-1] // parts)
    return jnp.linalg.norm((achieved - goal).reshape(shape), axis=-1)
