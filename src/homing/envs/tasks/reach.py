"""The reaching task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import Arena
from homing.envs.goals import Away, Distribution
from homing.envs.tasks.base import TaskSample
from homing.envs.tasks.props import Prop
from homing.types import Key


@dataclass(frozen=True)
class Reach:
    """Bring named state entries to the goal.

    goal:   names of those entries
    goals:  distribution of goals
    within: success threshold on the distance to the goal
    starts: distribution of the robot's position, `Away` for a distance from the goal, None for the body's own
    """

    goal: tuple[str, ...]
    goals: Distribution
    within: float = 0.5
    starts: Distribution | Away | None = None
    props: tuple[Prop, ...] = ()
    margins: Mapping[str, float] = field(default_factory=dict)
    name: str = "reach"
    parts: int = 1
    hand: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds.check(self)

    def draw(self, key: Key, arena: Arena) -> TaskSample:
        k_goal, k_start, k_props = jax.random.split(key, 3)
        goal = self.goals.draw(k_goal, arena)
        if self.starts is None:
            start = None
        elif isinstance(self.starts, Away):
            start = self.starts.from_goal(k_start, goal)
        else:
            start = self.starts.draw(k_start, arena)
        keys = jax.random.split(k_props, max(1, len(self.props)))
        rests = [prop.rest(k) for prop, k in zip(self.props, keys, strict=False)]
        return TaskSample(goal, start, jnp.concatenate([jnp.zeros((0,), jnp.float32), *rests]))
