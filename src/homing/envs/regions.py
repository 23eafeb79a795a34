"""What an arm can reach, as regions of goals: discs and rings on the floor, and the solid that a wrist fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

ROUNDING = 1e-6  # metres
CELL, SIDE = 0.01, 128  # side of a square of `Solid`, in metres, and number of squares along each axis


@runtime_checkable
class Region(Protocol):
    """A set of points that an arm can bring something to.

    entries: state entries of that point's position
    """

    @property
    def entries(self) -> tuple[str, ...]: ...
    @property
    def words(self) -> str:
        """What an arm reaches, for messages: "reaches 0.2 m from (0, 0)"."""
        ...

    @property
    def heights(self) -> tuple[float, float] | None:
        """Lowest and highest point; None where heights do not count."""
        ...

    def inside(self, points: Any) -> Any:
        """Which points [..., 2 or 3] are in the region, bool [...]; for NumPy arrays and for JAX's."""
        ...

    def nearest(self, point: np.ndarray) -> np.ndarray:
        """The point of the region that is nearest to a point [2 or 3]."""
        ...


@dataclass(frozen=True)
class Reachable:
    """A disc on the floor, or a ring where `least` is above 0; with `heights`, also the space above it.

    sector: lowest and highest azimuth about the centre, in (−π, π]; None is all round
    """

    entries: tuple[str, ...]
    centre: tuple[float, float]
    radius: float
    least: float = 0.0
    heights: tuple[float, float] | None = None
    sector: tuple[float, float] | None = None

    @property
    def words(self) -> str:
        low = f"{self.least:.3g} to " if self.least else ""
        high = "" if self.heights is None else f", {self.heights[0]:g} to {self.heights[1]:g} m high"
        sides = "" if self.sector is None else _degrees(self.sector)
        return f"reaches {low}{self.radius:.3g} m from ({self.centre[0]:g}, {self.centre[1]:g}){high}{sides}"

    def inside(self, points: Any) -> Any:
        offset = points[..., :2] - np.asarray(self.centre, np.float32)
        distance = (offset[..., 0] ** 2 + offset[..., 1] ** 2) ** 0.5
        found = (distance <= self.radius + ROUNDING) & (distance >= self.least - ROUNDING)
        if self.sector is not None:
            found = found & _in_sector(offset, self.sector)
        if self.heights is None or points.shape[-1] < 3:
            return found
        low, high = self.heights
        return found & (points[..., 2] >= low - ROUNDING) & (points[..., 2] <= high + ROUNDING)

    def nearest(self, point: np.ndarray) -> np.ndarray:
        centre, offset = np.asarray(self.centre), point[:2] - np.asarray(self.centre)
        height = point[2:] if self.heights is None else np.clip(point[2:], *self.heights)
        places = [
            np.concatenate([centre + along * np.clip(along @ offset, self.least, self.radius), height])
            for along in _directions(offset, self.sector)
        ]
        return _nearest(places, point)


@dataclass(frozen=True)
class Solid:
    """A solid of revolution about the vertical through the origin: distances and heights, and a range of azimuths.

    sample: function without arguments that returns distances and heights [K, 2] in reach, densely
    sector: lowest and highest azimuth, in (−π, π]
    """

    entries: tuple[str, ...]
    sample: Callable[[], np.ndarray] = field(repr=False)  # its address would be another in every process
    sector: tuple[float, float]

    @property
    def heights(self) -> tuple[float, float]:
        squares = _squares(self.sample)
        return round(float(squares[:, 1].min()), 3), round(float(squares[:, 1].max()), 3)

    @property
    def words(self) -> str:
        farthest = np.max(_squares(self.sample), axis=0)[0]
        return f"reaches at most {farthest:.2g} m from its axis{_degrees(self.sector)}"

    def inside(self, points: Any) -> Any:
        distance = (points[..., 0] ** 2 + points[..., 1] ** 2) ** 0.5
        i, j = (jnp.floor(x / CELL).astype(jnp.int32) for x in (distance, points[..., 2]))
        known = (i < SIDE) & (j >= 0) & (j < SIDE)
        filled = jnp.asarray(raster(self.sample))[jnp.clip(i, 0, SIDE - 1), jnp.clip(j, 0, SIDE - 1)]
        found = known & filled & _in_sector(points, self.sector)
        return np.asarray(found) if isinstance(points, np.ndarray) else found

    def nearest(self, point: np.ndarray) -> np.ndarray:
        squares, places = _squares(self.sample), []
        for along in _directions(point[:2], self.sector):
            flat = np.array([along @ point[:2], point[2]])
            distance, height = squares[np.argmin(np.sum(np.square(squares - flat), axis=-1))]
            places.append(np.array([*(distance * along), height]))
        return _nearest(places, point)


def _in_sector(points: Any, sector: tuple[float, float]) -> Any:
    """Whether the azimuths of points [..., 2 or 3] are in a sector, bool [...]; for NumPy arrays and for JAX's."""
    azimuth = (np if isinstance(points, np.ndarray) else jnp).arctan2(points[..., 1], points[..., 0])
    return (azimuth >= sector[0] - ROUNDING) & (azimuth <= sector[1] + ROUNDING)


def _directions(xy: np.ndarray, sector: tuple[float, float] | None) -> list[np.ndarray]:
    """Directions [2] from the axis in which the nearest point can lie: that of xy, or the ends of the sector."""
    # A point on the axis has no direction; any will do.
    azimuth = float(np.arctan2(xy[1], xy[0])) if np.any(xy) else 0.5 * np.pi
    angles = (azimuth,) if sector is None or sector[0] <= azimuth <= sector[1] else sector
    return [np.array([np.cos(angle), np.sin(angle)]) for angle in angles]


def _nearest(places: list[np.ndarray], point: np.ndarray) -> np.ndarray:
    return min(places, key=lambda place: float(np.linalg.norm(place - point)))


def _degrees(sector: tuple[float, float]) -> str:
    low, high = np.degrees(sector)
    return f", at azimuths of {low:.0f} to {high:.0f}°"


@lru_cache
def raster(sample: Callable[[], np.ndarray]) -> np.ndarray:
    """The squares, bool [SIDE, SIDE], that are in reach together with their neighbours.

    Those at the border are left out, so that all of a square is in reach.
    """
    index = np.floor(sample() / CELL).astype(int)
    index = index[np.all((index >= 0) & (index < SIDE), axis=-1)]
    filled = np.zeros((SIDE + 2, SIDE + 2), bool)
    filled[tuple(index.T + 1)] = True
    for axis in (0, 1):
        filled = filled & np.roll(filled, 1, axis) & np.roll(filled, -1, axis)
    return filled[1:-1, 1:-1]


@lru_cache
def _squares(sample: Callable[[], np.ndarray]) -> np.ndarray:
    """Centres [K, 2] of the squares of `raster`: distance and height."""
    return CELL * (np.argwhere(raster(sample)) + 0.5)
