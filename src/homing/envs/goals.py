"""Distributions of goals and start positions; each call draws one sample, the caller vmaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.arenas import Arena
from homing.errors import ConfigError
from homing.types import Array, Key


class Distribution(Protocol):
    """A distribution of points with `dim` entries."""

    @property
    def dim(self) -> int: ...

    def draw(self, key: Key, arena: Arena) -> Array: ...


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
