"""The reaching task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import Arena
from homing.envs.goals import Away, Distribution, Paired, Relative
from homing.envs.tasks.base import TaskSample
from homing.envs.tasks.props import Prop
from homing.errors import ConfigError
from homing.types import Array, Key


@dataclass(frozen=True)
class Reach:
    """Bring named state entries to the goal.

    goal:   names of those entries
    goals:  distribution of goals; one that depends on the robot's position needs `starts`, unless it draws pairs
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
        if isinstance(self.goals, Paired):
            if self.starts is not None:
                raise ConfigError(f"{type(self.goals).__name__} draws starts too; leave `starts` out")
        elif isinstance(self.goals, Relative) and (self.starts is None or isinstance(self.starts, Away)):
            raise ConfigError(f"goals by {type(self.goals).__name__} need starts, such as Box or FreeCells")

    def draw(self, key: Key, arena: Arena) -> TaskSample:
        k_goal, k_start, k_props = jax.random.split(key, 3)
        goal, start = self._goal_and_start(k_goal, k_start, arena)
        keys = jax.random.split(k_props, max(1, len(self.props)))
        rests = [prop.rest(k) for prop, k in zip(self.props, keys, strict=False)]
        return TaskSample(goal, start, jnp.concatenate([jnp.zeros((0,), jnp.float32), *rests]))

    def _goal_and_start(self, k_goal: Key, k_start: Key, arena: Arena) -> tuple[Array, Array | None]:
        """Whichever depends on the other is drawn second."""
        if isinstance(self.goals, Paired):
            return self.goals.draw_pair(k_goal, arena)
        if isinstance(self.starts, Away):
            goal = self.goals.draw(k_goal, arena)
            return goal, self.starts.from_goal(k_start, goal)
        start = None if self.starts is None else self.starts.draw(k_start, arena)
        if isinstance(self.goals, Relative) and start is not None:
            return self.goals.draw_from(k_goal, arena, start), start
        return self.goals.draw(k_goal, arena), start
