"""Maze walls as a few boxes that follow the robot.

A maze has one box for each wall cell, but a robot can only touch nearby cells. The simulated model therefore
has a few boxes that follow the robot: before each environment step they are moved to the nearest wall cells,
and boxes for free cells are moved far below the floor. All contacts of the full maze are preserved, with the
same shapes at the same positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

BELOW = -100.0  # height of unused boxes


@dataclass(frozen=True)
class WallWindow:
    """The wall boxes that follow one body.

    prefix: prefix of the boxes' names
    body:   name of the body they follow
    grid:   [rows, columns] bool, true for wall cells; cell (i, j) is centred at x = i·cell, y = j·cell
    height: height of a wall's centre
    """

    prefix: str
    body: str
    grid: np.ndarray
    cell: float
    height: float

    def bind(self, model: mujoco.MjModel) -> BoundWindow:
        """Resolve names to indices in a compiled model."""
        names = [model.geom(i).name for i in range(model.ngeom)]
        geoms = tuple(i for i, name in enumerate(names) if name.startswith(self.prefix))
        return BoundWindow(self, geoms, model.body(self.body).id - 1)


@dataclass(frozen=True)
class BoundWindow:
    """A window in a compiled model: indices of its block × block boxes and of the link that they follow."""

    window: WallWindow
    geoms: tuple[int, ...]
    link: int

    @property
    def block(self) -> int:
        """Side of the block of boxes."""
        return math.isqrt(len(self.geoms))

    def place(self, xy: jax.Array) -> jax.Array:
        """Centres of the boxes, [block², 3], around a link at xy [2]."""
        # An even block is centred on the nearest corner of cells, an odd one on the nearest cell.
        first = (
            jnp.floor(xy / self.window.cell + (0.5 if self.block % 2 else 0.0)).astype(jnp.int32)
            - (self.block - 1) // 2
        )
        steps = jnp.arange(self.block, dtype=jnp.int32)
        i, j = jnp.meshgrid(first[0] + steps, first[1] + steps, indexing="ij")
        grid = jnp.asarray(np.pad(self.window.grid, 1))  # cells outside of the maze are free
        rows, columns = grid.shape
        wall = grid[jnp.clip(i + 1, 0, rows - 1), jnp.clip(j + 1, 0, columns - 1)]
        z = jnp.where(wall, self.window.height, BELOW)
        return (
            jnp.stack([i * self.window.cell, j * self.window.cell, z], axis=-1)
            .reshape(-1, 3)
            .astype(jnp.float32)
        )


def block_for(reach: float, cell: float) -> int:
    """Side of the block of cells that covers all points within `reach` metres of a link."""
    if reach < 0.5 * cell:
        return 2
    return 2 * math.ceil(reach / cell) + 1


def place_windows(windows: tuple[BoundWindow, ...], geom_pos: jax.Array, link_pos: jax.Array) -> jax.Array:
    """Geom positions [G, 3] with the wall boxes moved to the links at link_pos [L, 3]."""
    for window in windows:
        geom_pos = geom_pos.at[np.array(window.geoms)].set(window.place(link_pos[window.link, :2]))
    return geom_pos
