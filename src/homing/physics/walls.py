"""Maze walls at the price of a few boxes.

A maze has one box for each wall cell, but a robot touches only the cells round it. So the simulated model has
a handful of boxes that follow the robot: before each environment step they are put where the nearest wall
cells are, and those that would stand on free cells go deep below the floor. Every contact that the full
maze would produce is produced here too, by the same shape at the same place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

BELOW = -100.0  # where boxes wait that stand for free cells


@dataclass(frozen=True)
class WallWindow:
    """The boxes that follow one body.

    prefix: what the names of the boxes begin with
    body:   name of the body they follow
    grid:   [rows, columns] bool, true where a wall cell is; cell (i, j) is centred at x = i·cell, y = j·cell
    height: of a wall's centre
    """

    prefix: str
    body: str
    grid: np.ndarray
    cell: float
    height: float

    def bind(self, model: mujoco.MjModel) -> BoundWindow:
        """Names become indices."""
        names = [model.geom(i).name for i in range(model.ngeom)]
        geoms = tuple(i for i, name in enumerate(names) if name.startswith(self.prefix))
        return BoundWindow(self, geoms, model.body(self.body).id - 1)


@dataclass(frozen=True)
class BoundWindow:
    """A window in a compiled model: ids of its block × block boxes and of the link that they follow."""

    window: WallWindow
    geoms: tuple[int, ...]
    link: int

    @property
    def block(self) -> int:
        return math.isqrt(len(self.geoms))

    def place(self, xy: jax.Array) -> jax.Array:
        """Centres of the boxes, [block², 3], round a link at xy [2]."""
        # An even block surrounds the nearest corner of cells, an odd one the nearest cell.
        first = (
            jnp.floor(xy / self.window.cell + (0.5 if self.block % 2 else 0.0)).astype(jnp.int32)
            - (self.block - 1) // 2
        )
        steps = jnp.arange(self.block, dtype=jnp.int32)
        i, j = jnp.meshgrid(first[0] + steps, first[1] + steps, indexing="ij")
        grid = jnp.asarray(np.pad(self.window.grid, 1))  # outside of the maze all is free
        rows, columns = grid.shape
        wall = grid[jnp.clip(i + 1, 0, rows - 1), jnp.clip(j + 1, 0, columns - 1)]
        z = jnp.where(wall, self.window.height, BELOW)
        return (
            jnp.stack([i * self.window.cell, j * self.window.cell, z], axis=-1)
            .reshape(-1, 3)
            .astype(jnp.float32)
        )


def block_for(reach: float, cell: float) -> int:
    """How many cells a side must be covered round a link whose robot reaches `reach` metres from it."""
    if reach < 0.5 * cell:
        return 2
    return 2 * math.ceil(reach / cell) + 1


def place_windows(windows: tuple[BoundWindow, ...], geom_pos: jax.Array, link_pos: jax.Array) -> jax.Array:
    """Geom positions [G, 3] of a model with its wall boxes put round the links at link_pos [L, 3]."""
    for window in windows:
        geom_pos = geom_pos.at[np.array(window.geoms)].set(window.place(link_pos[window.link, :2]))
    return geom_pos
