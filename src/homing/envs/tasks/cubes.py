"""Tasks of the Panda with a cube: moving it to a goal, and gripping it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import Arena
from homing.envs.goals import Distribution
from homing.envs.tasks.base import TaskSample
from homing.envs.tasks.carry import away_from
from homing.envs.tasks.props import Cube, prop_position
from homing.errors import ConfigError
from homing.physics import panda
from homing.types import Array, Key

TIPS = tuple(f"{side}_tip_{axis}" for side in ("left", "right") for axis in "xyz")
FACE = 0.0045
"""Distance of a gripping fingertip from the face of the cube that it presses on, in metres."""
OPEN = panda.STRETCH + panda.TIP_AT[1]
"""Distance of the tip of a finger that stands open from the middle, in metres."""


@dataclass(frozen=True)
class MoveCube:
    """Move the cube to the goal; it starts at least `apart` from it, so that no start is a success.

    cubes: x, y distribution of the cube's start
    goals: x, y distribution of goals, which lie on the table
    """

    cubes: Distribution
    goals: Distribution
    cube: Cube = field(default_factory=Cube)
    within: float = 0.1
    apart: float = 0.12
    margins: Mapping[str, float] = field(default_factory=lambda: {"success_easy": 0.3, "success_hard": 0.03})
    name: str = "move"
    parts: int = 1
    hand: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def props(self) -> tuple[Cube, ...]:
        return (self.cube,)

    @property
    def goal(self) -> tuple[str, ...]:
        return prop_position(self.cube)

    def draw(self, key: Key, arena: Arena) -> TaskSample:
        k_goal, k_cube = jax.random.split(key)
        goal = self.goals.draw(k_goal, arena)
        place = away_from(k_cube, goal, self.cubes, arena, self.apart)
        return TaskSample(jnp.append(goal, jnp.float32(self.cube.half)), None, self.cube.coordinates(place))


@dataclass(frozen=True)
class Grasp:
    """Grip the cube where it stands: goals are the places of the cube and of both fingertips at its sides.

    The threshold holds for each of the three points. Open fingers are farther apart than two thresholds more
    than a grip is, so they are no success, and a cube that was pushed away is none. The cube faces the arm, as
    the wrist does not turn. A new goal inside of an episode is the grip of the cube where it then is.
    """

    cubes: Distribution
    cube: Cube = field(default_factory=Cube)
    within: float = 0.02
    margins: Mapping[str, float] = field(default_factory=lambda: {"success_easy": 0.05, "success_hard": 0.01})
    name: str = "grasp"
    parts: int = 3
    hand: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def props(self) -> tuple[Cube, ...]:
        return (self.cube,)

    @property
    def goal(self) -> tuple[str, ...]:
        return (*prop_position(self.cube), *TIPS)

    @property
    def grip(self) -> float:
        """Distance of a gripping fingertip from the centre of the cube, along the fingers' direction, in metres."""
        return round(self.cube.half + FACE, 6)

    def draw(self, key: Key, arena: Arena) -> TaskSample:
        if OPEN - self.grip <= self.within:
            raise ConfigError(
                f"fingers that stand open are within {self.within:g} m of the grip of a cube with a half-size of "
                f"{self.cube.half:g} m; choose a smaller task.within or task.cube.half"
            )
        place = self.cubes.draw(key, arena)
        return TaskSample(self._gripped(place), None, self.cube.turned_to(place))

    def goal_from(self, achieved: Array) -> Array:
        """The grip [9] of the cube at its place on the table in an achieved goal [9]."""
        return self._gripped(achieved[:2])

    def _gripped(self, place: Array) -> Array:
        """Cube, left tip and right tip, [9], for a cube at x, y and a hand in the vertical plane of its azimuth."""
        centre = jnp.append(place, jnp.float32(self.cube.half))
        away = jnp.maximum(jnp.linalg.norm(place), 1e-6)  # a cube that was pushed to the base has no azimuth
        along = jnp.stack([place[1], -place[0], jnp.zeros(())]) / away
        return jnp.concatenate([centre, centre + self.grip * along, centre - self.grip * along])
