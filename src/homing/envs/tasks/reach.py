"""Go somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.goals import Away, Law
from homing.envs.tasks.base import Draw
from homing.envs.tasks.props import Prop


@dataclass(frozen=True)
class Reach:
    """Bring some entries of the state to the goal.

    goal:   names of those entries
    goals:  the law of goals
    within: how near counts as reached
    starts: the law of the robot's place, `Away` for a distance from the goal, None for the body's own
    """

    goal: tuple[str, ...]
    goals: Law
    within: float = 0.5
    starts: Law | Away | None = None
    props: tuple[Prop, ...] = ()
    margins: Mapping[str, float] = field(default_factory=dict)
    name: str = "reach"
    parts: int = 1
    hand: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds.check(self)

    def draw(self, key, arena) -> Draw:
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
        return Draw(goal, start, jnp.concatenate([jnp.zeros((0,), jnp.float32), *rests]))
