"""Distributions of goals and start positions; each call draws one sample, the caller vmaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import FREE, Arena
from homing.envs.regions import Region
from homing.errors import ConfigError
from homing.types import Array, Key

# Candidate directions of `Around`; the first that stays inside the arena is used.
DIRECTIONS = 32
# Candidate goals of `InReach`, the first good one of which is used; at least half of a box is good.
CANDIDATES = 32


@runtime_checkable
class Distribution(Protocol):
    """A distribution of points with `dim` entries."""

    @property
    def dim(self) -> int: ...

    def draw(self, key: Key, arena: Arena) -> Array: ...


@runtime_checkable
class Relative(Protocol):
    """A distribution of goals that depends on where the robot is."""

    def draw_from(self, key: Key, arena: Arena, place: Array) -> Array:
        """Sample a goal for a robot at place [2]."""
        ...


@runtime_checkable
class Paired(Protocol):
    """A distribution of goals that comes with starts."""

    def draw_pair(self, key: Key, arena: Arena) -> tuple[Array, Array]:
        """Sample a goal, and a start [2] for it."""
        ...


def direction(angle: Array) -> Array:
    """The unit vector [2] at an angle."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def random_angle(key: Key) -> Array:
    """A uniform angle in [−π, π]."""
    return jax.random.uniform(key, (), jnp.float32, -jnp.pi, jnp.pi)


def _with_height(xy: Array, height: float | None) -> Array:
    return xy if height is None else jnp.append(xy, jnp.float32(height))


@dataclass(frozen=True)
class Ring:
    """A circle about the origin with a uniform angle; with `outer`, the radius is uniform in [radius, outer].

    A uniform radius is not uniform in area.
    """

    radius: float
    outer: float | None = None
    height: float | None = None

    def __post_init__(self) -> None:
        bounds.check(self)
        if self.radius < 0 or (self.outer is not None and self.outer < self.radius):
            raise ConfigError(f"a ring needs 0 ≤ radius ≤ outer, not {self.radius} and {self.outer}")

    @property
    def dim(self) -> int:
        return 2 if self.height is None else 3

    def draw(self, key: Key, arena: Arena) -> Array:
        k_radius, k_angle = jax.random.split(key)
        outer = self.radius if self.outer is None else self.outer
        radius = jax.random.uniform(k_radius, (), jnp.float32, self.radius, outer)
        return _with_height(radius * direction(random_angle(k_angle)), self.height)


@dataclass(frozen=True)
class Points:
    """Uniform over a finite set of points; `spread` adds U(0, spread) on every axis."""

    points: tuple[tuple[float, ...], ...]
    spread: float = 0.0

    def __post_init__(self) -> None:
        bounds.check(self)
        if not self.points or len({len(p) for p in self.points}) != 1:
            raise ConfigError(f"points must be non-empty and of equal size, not {self.points}")

    @property
    def dim(self) -> int:
        return len(self.points[0])

    def draw(self, key: Key, arena: Arena) -> Array:
        k_which, k_spread = jax.random.split(key)
        points = jnp.asarray(self.points, jnp.float32)
        point = points[jax.random.randint(k_which, (), 0, len(self.points))]
        return point + jax.random.uniform(k_spread, (self.dim,), jnp.float32, 0.0, self.spread)


@dataclass(frozen=True)
class Box:
    """Uniform in a box."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        bounds.check(self)
        if len(self.low) != len(self.high) or any(a > b for a, b in zip(self.low, self.high, strict=False)):
            raise ConfigError(f"a box needs low ≤ high on every axis, not {self.low} and {self.high}")

    @property
    def dim(self) -> int:
        return len(self.low)

    def draw(self, key: Key, arena: Arena) -> Array:
        low, high = jnp.asarray(self.low, jnp.float32), jnp.asarray(self.high, jnp.float32)
        return low + (high - low) * jax.random.uniform(key, (self.dim,), jnp.float32)


@dataclass(frozen=True)
class InReach:
    """Uniform in a box, without what an arm cannot reach and what is too near to where it starts.

    region: where the arm can bring the goal; None allows all of the box
    start:  what is at least `apart` from every goal
    """

    box: Box
    region: Region | None = None
    start: tuple[float, ...] = ()
    apart: float = 0.0

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def dim(self) -> int:
        return self.box.dim

    def draw(self, key: Key, arena: Arena) -> Array:
        points = jax.vmap(lambda k: self.box.draw(k, arena))(jax.random.split(key, CANDIDATES))
        good = jnp.ones((CANDIDATES,), bool) if self.region is None else self.region.inside(points)
        if self.start:
            gap = jnp.linalg.norm(points - jnp.asarray(self.start, jnp.float32), axis=-1)
            good &= gap >= self.apart
        return points[jnp.argmax(good)]


@dataclass(frozen=True)
class Cells:
    """Uniform over the centres of the maze cells marked with a letter."""

    letter: str
    height: float | None = None

    @property
    def dim(self) -> int:
        return 2 if self.height is None else 3

    def draw(self, key: Key, arena: Arena) -> Array:
        centres = jnp.asarray(arena.cells(self.letter))
        return _with_height(centres[jax.random.randint(key, (), 0, len(centres))], self.height)


@dataclass(frozen=True)
class Away:
    """A start position at a fixed distance from the goal, in a uniform direction."""

    distance: float

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def dim(self) -> int:
        return 2

    def from_goal(self, key: Key, goal: Array) -> Array:
        """Sample a start position for a goal."""
        return goal[:2] + self.distance * direction(random_angle(key))


@dataclass(frozen=True)
class FreeCells:
    """Uniform over the centres of all maze cells without a wall; as goals, without the cell of the robot.

    spread: adds U(±spread) on x and y, in metres
    """

    height: float | None = None
    spread: float = 0.0

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def dim(self) -> int:
        return 2 if self.height is None else 3

    def draw(self, key: Key, arena: Arena) -> Array:
        k_cell, k_spread = jax.random.split(key)
        centres = jnp.asarray(arena.cells(FREE))
        return self._near(k_spread, centres[jax.random.randint(k_cell, (), 0, len(centres))])

    def draw_from(self, key: Key, arena: Arena, place: Array) -> Array:
        k_cell, k_spread = jax.random.split(key)
        centres = jnp.asarray(arena.cells(FREE))
        if len(centres) == 1:
            raise ConfigError("this maze has one free cell; goals in another cell than the start need two")
        here = jnp.argmin(jnp.sum(jnp.square(centres - place), axis=-1))
        # The numbers of the other cells, without a gap: those after the robot's own move down by one.
        other = jax.random.randint(k_cell, (), 0, len(centres) - 1)
        return self._near(k_spread, centres[other + (other >= here)])

    def _near(self, key: Key, centre: Array) -> Array:
        offset = jax.random.uniform(key, (2,), jnp.float32, -self.spread, self.spread)
        return _with_height(centre + offset, self.height)


@dataclass(frozen=True)
class Around:
    """A goal at a uniform distance in [least, most] from the robot, in a uniform direction inside the arena."""

    least: float
    most: float
    height: float | None = None

    def __post_init__(self) -> None:
        bounds.check(self)
        if not self.least <= self.most:
            raise ConfigError(f"goals around a robot need least ≤ most, not {self.least} and {self.most}")

    @property
    def dim(self) -> int:
        return 2 if self.height is None else 3

    def draw(self, key: Key, arena: Arena) -> Array:
        """A goal for a robot at the origin."""
        return self.draw_from(key, arena, jnp.zeros((2,), jnp.float32))

    def draw_from(self, key: Key, arena: Arena, place: Array) -> Array:
        k_distance, k_angle = jax.random.split(key)
        distance = jax.random.uniform(k_distance, (), jnp.float32, self.least, self.most)
        angles = jax.random.uniform(k_angle, (DIRECTIONS,), jnp.float32, -jnp.pi, jnp.pi)
        goals = place + distance * jax.vmap(direction)(angles)
        x0, x1, y0, y1 = arena.extent()
        low, high = jnp.asarray((x0, y0), jnp.float32), jnp.asarray((x1, y1), jnp.float32)
        outside = jnp.max(jnp.maximum(jnp.maximum(low - goals, goals - high), 0.0), axis=-1)
        return _with_height(goals[jnp.argmin(outside)], self.height)
