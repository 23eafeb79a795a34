"""Tasks that move objects to goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import Arena
from homing.envs.bodies.pusher import WRIST
from homing.envs.goals import Box, Distribution, direction
from homing.envs.tasks.base import TaskSample
from homing.envs.tasks.props import Ball, Prop, Puck, prop_position
from homing.types import Array, Key

# Candidate puck positions; the first that is far enough from the goal is used.
CANDIDATES = 32


@dataclass(frozen=True)
class Soccer:
    """Move the ball to the goal.

    balls: distribution of the ball's start; None places it near the line from the origin to the goal: at
           0.2·goal plus one metre in a random direction that keeps it clear of the torso
    """

    goals: Distribution
    balls: Distribution | None = None
    starts: Distribution | None = None
    within: float = 0.5
    clear: float = 0.8  # minimum distance of the ball from the torso
    margins: Mapping[str, float] = field(default_factory=lambda: {"success_easy": 2.0})
    name: str = "soccer"
    parts: int = 1
    hand: tuple[str, ...] = ()
    props: tuple[Prop, ...] = (Ball(),)

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def goal(self) -> tuple[str, ...]:
        return prop_position(self.props[0])

    def draw(self, key: Key, arena: Arena) -> TaskSample:
        k_goal, k_ball, k_start = jax.random.split(key, 3)
        goal = self.goals.draw(k_goal, arena)
        ball = self._near_path(k_ball, goal) if self.balls is None else self.balls.draw(k_ball, arena)
        start = None if self.starts is None else self.starts.draw(k_start, arena)
        return TaskSample(goal, start, ball)

    def _near_path(self, key: Key, goal: Array) -> Array:
        base = 0.2 * goal
        ahead = jnp.arctan2(goal[1], goal[0])
        # |base + u| ≥ clear for a unit vector u at angle δ from the goal's direction bounds cos δ from below.
        reach = jnp.linalg.norm(base)
        bound = (self.clear**2 - reach**2 - 1.0) / (2.0 * jnp.maximum(reach, 1e-6))
        widest = jnp.arccos(jnp.clip(bound, -1.0, 1.0))
        deviation = jax.random.uniform(key, (), jnp.float32, -1.0, 1.0) * widest
        return base + direction(ahead + deviation)


@dataclass(frozen=True)
class PushPucks:
    """Move every puck to its own goal; a puck starts at least `apart` from its goal.

    regions: x, y region of each puck's start
    goals:   x, y region of each puck's goal
    """

    regions: tuple[Box, ...]
    goals: tuple[Box, ...]
    within: float = 0.1
    apart: float = 0.17
    margins: Mapping[str, float] = field(default_factory=lambda: {"success_hard": 0.05})
    name: str = "push"
    hand: tuple[str, ...] = WRIST

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def parts(self) -> int:
        return len(self.goals)

    @property
    def props(self) -> tuple[Puck, ...]:
        if self.parts == 1:
            return (Puck(),)
        return tuple(Puck(name=f"puck{k + 1}") for k in range(self.parts))

    @property
    def goal(self) -> tuple[str, ...]:
        return tuple(name for prop in self.props for name in prop_position(prop))

    def draw(self, key: Key, arena: Arena) -> TaskSample:
        goals, positions = [], []
        for k, region, goal_region, puck in zip(
            jax.random.split(key, self.parts), self.regions, self.goals, self.props, strict=True
        ):
            k_goal, k_puck = jax.random.split(k)
            goal = goal_region.draw(k_goal, arena)
            # Goals are at the height of the puck, so that the distance can reach 0.
            goals.append(jnp.append(goal, jnp.float32(puck.origin[2])))
            positions.append(puck.coordinates(away_from(k_puck, goal, region, arena, self.apart)))
        return TaskSample(jnp.concatenate(goals), None, jnp.concatenate(positions))


def away_from(key: Key, goal: Array, region: Distribution, arena: Arena, apart: float) -> Array:
    """A draw from the region, conditioned on being at least `apart` from the goal (rejection sampling).

    If no candidate qualifies, it is moved radially away from the goal, which can take it out of the region by
    less than `apart`.
    """
    positions = jax.vmap(lambda k: region.draw(k, arena))(jax.random.split(key, CANDIDATES))
    distance = jnp.linalg.norm(positions - goal, axis=-1)
    chosen = jnp.argmax(distance >= apart)
    position, gap = positions[chosen], distance[chosen]
    moved = goal + (position - goal) * (apart / jnp.maximum(gap, 1e-6))
    return jnp.where(gap >= apart, position, moved)
