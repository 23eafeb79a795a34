"""Bring objects somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.bodies.pusher import WRIST
from homing.envs.goals import Box, Law, direction
from homing.envs.tasks.base import Draw
from homing.envs.tasks.props import Ball, Prop, Puck, prop_columns
from homing.types import Array, Key

# Draws of a puck, of which the first that is far enough from the goal counts.
TRIES = 32


@dataclass(frozen=True)
class Soccer:
    """Bring the ball to the goal.

    balls: the law of the ball's place; None puts it about the way from the origin to the goal: at 0.2·goal
           plus one metre in a direction of its own, where that is not into the torso
    """

    goals: Law
    balls: Law | None = None
    starts: Law | None = None
    within: float = 0.5
    clear: float = 0.8  # least distance of the ball from the torso
    margins: Mapping[str, float] = field(default_factory=lambda: {"success_easy": 2.0})
    name: str = "soccer"
    parts: int = 1
    hand: tuple[str, ...] = ()
    props: tuple[Ball, ...] = (Ball(),)

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def goal(self) -> tuple[str, ...]:
        return tuple(prop_columns(self.props[0]))

    def draw(self, key, arena) -> Draw:
        k_goal, k_ball, k_start = jax.random.split(key, 3)
        goal = self.goals.draw(k_goal, arena)
        ball = self._beside_the_way(k_ball, goal) if self.balls is None else self.balls.draw(k_ball, arena)
        start = None if self.starts is None else self.starts.draw(k_start, arena)
        return Draw(goal, start, ball)

    def _beside_the_way(self, key: Key, goal: Array) -> Array:
        base = 0.2 * goal
        ahead = jnp.arctan2(goal[1], goal[0])
        # |base + u| ≥ clear for a unit vector u at angle δ from the goal's direction bounds cos δ from below.
        reach = jnp.linalg.norm(base)
        bound = (self.clear**2 - reach**2 - 1.0) / (2.0 * jnp.maximum(reach, 1e-6))
        widest = jnp.arccos(jnp.clip(bound, -1.0, 1.0))
        turn = jax.random.uniform(key, (), jnp.float32, -1.0, 1.0) * widest
        return base + direction(ahead + turn)


@dataclass(frozen=True)
class PushPucks:
    """Bring every puck to its own goal; a puck starts at least `apart` from its goal.

    regions: the x, y region of each puck's start; goals: of each puck's goal
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
    def props(self) -> tuple[Prop, ...]:
        if self.parts == 1:
            return (Puck(),)
        return tuple(Puck(name=f"puck{k + 1}") for k in range(self.parts))

    @property
    def goal(self) -> tuple[str, ...]:
        return tuple(name for prop in self.props for name in prop_columns(prop))

    def draw(self, key, arena) -> Draw:
        goals, places = [], []
        for k, region, law, puck in zip(
            jax.random.split(key, self.parts), self.regions, self.goals, self.props, strict=True
        ):
            k_goal, k_puck = jax.random.split(k)
            goal = law.draw(k_goal, arena)
            # Goals lie at the height of the puck, so that a goal can be reached exactly.
            goals.append(jnp.append(goal, jnp.float32(puck.origin[2])))
            places.append(puck.coordinates(self._away_from(k_puck, goal, region, arena)))
        return Draw(jnp.concatenate(goals), None, jnp.concatenate(places))

    def _away_from(self, key: Key, goal: Array, region: Box, arena) -> Array:
        """A uniform place in the region, given that it is at least `apart` from the goal.

        Where nearly all of the region is too near, no draw may do; then the puck is moved straight away from
        the goal, which can bring it out of the region, by less than `apart`.
        """
        places = jax.vmap(lambda k: region.draw(k, arena))(jax.random.split(key, TRIES))
        distance = jnp.linalg.norm(places - goal, axis=-1)
        chosen = jnp.argmax(distance >= self.apart)
        place, off = places[chosen], distance[chosen]
        moved = goal + (place - goal) * (self.apart / jnp.maximum(off, 1e-6))
        return jnp.where(off >= self.apart, place, moved)
