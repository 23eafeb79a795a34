"""Lengths of the shortest paths on the floor around the walls of an arena."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from homing.envs.arenas import Arena, Maze, Table, Wall
from homing.errors import ConfigError
from homing.types import Array

# Distance that paths keep from walls, as a fraction of a cell; in rooms, metres.
CELL_CLEARANCE, ROOM_CLEARANCE = 0.15, 0.5
GAP = 1e-3  # between a path and a box that it goes along, so that rounding does not decide what is blocked


class ShortestPaths:
    """Geodesic distances between points [..., 2] of a floor with boxes on it.

    Boxes are enlarged by `clearance`. A shortest path consists of straight legs between corners, whose distances
    from each other are a table; the two ends of a path see some of them. Ends that are nearer to a wall than the
    clearance are moved away from it first, which keeps the distance continuous.
    """

    def __init__(self, walls: Sequence[Wall], clearance: float, extent: tuple[float, float, float, float]):
        centre = np.array([wall.centre[:2] for wall in walls], np.float32).reshape(-1, 2)
        half = np.array([wall.half[:2] for wall in walls], np.float32).reshape(-1, 2) + clearance
        self.low, self.high = centre - half, centre + half
        self.corners = self._free_corners(extent)
        self.between = self._corner_distances()

    def __call__(self, start: Array, goal: Array) -> Array:
        """Length [...] of the shortest path; the straight distance where there is none."""
        p, q = self._moved_out(start), self._moved_out(goal)
        direct = jnp.where(self._sees(p, q), _length(p - q), jnp.inf)
        first, last = (self._legs(end) for end in (p, q))
        around = jnp.min(
            first[..., :, None] + self.between + last[..., None, :], axis=(-2, -1), initial=jnp.inf
        )
        found = jnp.minimum(direct, around) + _length((start - p) - (goal - q))
        return jnp.where(jnp.isfinite(found), found, _length(start - goal))

    def _free_corners(self, extent: tuple[float, float, float, float]) -> np.ndarray:
        """Corners [K, 2] of the boxes that are in no box and inside the arena."""
        low, high = self.low - GAP, self.high + GAP
        x, y = (np.stack([low[:, axis], high[:, axis]], axis=1) for axis in (0, 1))
        corners = np.stack([x[:, [0, 0, 1, 1]], y[:, [0, 1, 0, 1]]], axis=-1).reshape(-1, 2)
        covered = ((corners[:, None] > self.low) & (corners[:, None] < self.high)).all(axis=-1)
        inside = (corners > np.array(extent)[[0, 2]]) & (corners < np.array(extent)[[1, 3]])
        return np.unique(corners[inside.all(axis=-1) & ~np.logical_or.reduce(covered, axis=1)], axis=0)

    def _corner_distances(self) -> np.ndarray:
        """Shortest distances [K, K] between corners, inf where there is no way."""
        table = np.array(self._legs(jnp.asarray(self.corners)), np.float32)
        np.fill_diagonal(table, 0.0)
        for via in range(len(table)):
            table = np.minimum(table, table[:, via, None] + table[None, via])
        return table

    def _legs(self, point: Array) -> Array:
        """Straight distances [..., K] from points [..., 2] to the corners that they see, inf to others."""
        gap = point[..., None, :] - self.corners
        return jnp.where(self._sees(point[..., None, :], jnp.asarray(self.corners)), _length(gap), jnp.inf)

    def _sees(self, a: Array, b: Array) -> Array:
        """Whether no box is between points a and b, [...]: a line enters a box after it has left it on one axis."""
        way = (b - a)[..., None, :]
        way = jnp.where(jnp.abs(way) < 1e-9, 1e-9, way)
        ends = (self.low - a[..., None, :]) / way, (self.high - a[..., None, :]) / way
        enter = jnp.max(jnp.minimum(*ends), axis=-1)
        leave = jnp.min(jnp.maximum(*ends), axis=-1)
        return ~jnp.any((enter < leave) & (leave > 0) & (enter < 1), axis=-1)

    def _moved_out(self, point: Array) -> Array:
        """Points [..., 2], those inside of boxes moved to their nearest sides, one box after the other."""
        for low, high in zip(self.low - 0.5 * GAP, self.high + 0.5 * GAP, strict=True):
            depth = jnp.stack([point - low, high - point], axis=-1).reshape(*point.shape[:-1], 4)
            nearest = jnp.argmin(depth, axis=-1)[..., None] == jnp.arange(4)  # x low, x high, y low, y high
            outwards = (depth * nearest).reshape(*point.shape, 2) * jnp.array([-1.0, 1.0])
            inside = jnp.all(depth > 0, axis=-1, keepdims=True)
            point = jnp.where(inside, point + jnp.sum(outwards, axis=-1), point)
        return point


def shortest_paths(arena: Arena) -> ShortestPaths | None:
    """Those of a maze or room; None on open floor, where straight lines are the shortest."""
    if isinstance(arena, Table):
        raise ConfigError("geodesic distances are for robots on a floor; arms move over the walls of a table")
    clearance = CELL_CLEARANCE * arena.cell if isinstance(arena, Maze) else ROOM_CLEARANCE
    walls = arena.walls()
    return ShortestPaths(walls, clearance, arena.extent()) if walls else None


def _length(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=-1))
