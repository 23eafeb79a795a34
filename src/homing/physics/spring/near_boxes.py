"""The boxes of a wall window that a geom can touch: the four around it.

A window follows a robot and covers all that its limbs reach: 3 × 3 cells around a humanoid. A single geom that
reaches less than half a cell touches none but the four cells around the corner of cells that is nearest to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from homing.physics.vectors import Number, Vec, constant, constants
from homing.physics.walls import BoundWindow

Array = jax.Array
NEAR = 4


@dataclass(frozen=True)
class NearBoxes:
    """The four of a window's block × block boxes that are nearest to each geom, [4, K].

    first: index of the window's first box in the table of boxes
    """

    first: int
    block: int
    cell: float
    half: Vec

    @classmethod
    def of(
        cls, model: mujoco.MjModel, ids: np.ndarray, boxes: np.ndarray, windows: tuple[BoundWindow, ...]
    ) -> NearBoxes | None:
        """For geoms `ids` that collide with `boxes` [S, K]; None unless four are fewer, and enough for all geoms."""
        first = 0
        for bound in windows:
            is_whole = all(tuple(column) == bound.geoms for column in boxes.T)
            alike = not np.any(np.ptp(model.geom_size[list(bound.geoms)], axis=0))
            reach = np.max(np.sum(model.geom_size[ids, :2], axis=1))
            if is_whole and alike and len(bound.geoms) > NEAR and reach < 0.5 * bound.window.cell:
                return cls(first, bound.block, bound.window.cell, constants(model.geom_size[boxes[:NEAR]]))
            first += len(bound.geoms)
        return None

    def centres(self, own: Vec, walls: Array) -> Vec:
        """Box centres, components [N, 4, K], for geoms at [N, 1, K], from a table [N, 3 · boxes]."""
        count = walls.shape[-1] // 3
        column = lambda axis, box: walls[:, axis * count + self.first + box, None, None]
        # Index of the lower of the two near cells on each axis, and where it is.
        index = [self._lower(own[axis], column(axis, 0)) for axis in (0, 1)]
        low = [column(axis, 0) + self.cell * index[axis] for axis in (0, 1)]
        heights = [
            self._height(index, lambda box: column(2, box), i, j) for i, j in product((0, 1), repeat=2)
        ]
        beside = constant(np.array([[0.0], [0.0], [self.cell], [self.cell]]))
        above = constant(np.array([[0.0], [self.cell], [0.0], [self.cell]]))
        return low[0] + beside, low[1] + above, jnp.concatenate(heights, axis=-2)

    def _lower(self, place: Number, first: Array) -> Array:
        """How many of the block's inner cells lie below a place, as a float."""
        inner = range(1, self.block - 1)
        return sum(
            ((place > first + k * self.cell).astype(jnp.float32) for k in inner), jnp.zeros_like(place)
        )

    def _height(self, index: list[Array], height: Callable[[int], Array], i: int, j: int) -> Array:
        """Height of the box i rows and j columns from the lower one."""
        found = jnp.zeros_like(index[0])
        for row, column in product(range(self.block - 1), repeat=2):
            here = (index[0] == row) & (index[1] == column)
            found = jnp.where(here, height((row + i) * self.block + column + j), found)
        return found
