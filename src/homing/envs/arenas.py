"""Arenas: open floor, a maze from a text grid, or a room of fixed boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import dedent
from typing import Protocol

import numpy as np

from homing import bounds
from homing.envs.layouts import LAYOUTS
from homing.errors import ConfigError, unknown
from homing.physics import Model, WallWindow, block_for

SYMBOLS = "#RGB."
FREE = "RGB."  # cells without a wall
WALL_RGBA = (0.36, 0.45, 0.55, 1.0)
MIN_GAP = 0.02  # between walls, in metres; a narrower gap is closed
# Upper bound in metres on a robot's travel in one environment step, between two updates of its wall boxes: an ant's
# at 5 m/s, a humanoid's, whose steps are shorter, at 16 m/s.
TRAVEL = 0.25


@dataclass(frozen=True)
class Wall:
    """An axis-aligned box: centre and half-sizes."""

    centre: tuple[float, float, float]
    half: tuple[float, float, float]


class Arena(Protocol):
    """The static surroundings of a robot."""

    @property
    def name(self) -> str: ...

    def build(self, model: Model, followed: tuple[str, ...]) -> None:
        """Add the collision geometry for the `followed` bodies to the model."""
        ...

    def windows(self, followed: tuple[str, ...]) -> tuple[WallWindow, ...]:
        """Descriptions of the wall boxes of `build` that follow bodies."""
        ...

    def walls(self) -> tuple[Wall, ...]:
        """All walls, for rendering."""
        ...

    def cells(self, letters: str) -> np.ndarray:
        """Centres [K, 2] of the cells marked with one of the letters."""
        ...

    def extent(self) -> tuple[float, float, float, float]:
        """Visible range: low x, high x, low y, high y."""
        ...


@dataclass(frozen=True)
class Floor:
    """Open floor; `half` is the half-size of its visible part."""

    half: float = 12.0
    name: str = "floor"

    def __post_init__(self) -> None:
        bounds.check(self)

    def build(self, model: Model, followed: tuple[str, ...]) -> None:
        pass

    def windows(self, followed: tuple[str, ...]) -> tuple[WallWindow, ...]:
        return ()

    def walls(self) -> tuple[Wall, ...]:
        return ()

    def cells(self, letters: str) -> np.ndarray:
        raise ConfigError("open floor has no cells; use a Maze for cell goals or starts")

    def extent(self) -> tuple[float, float, float, float]:
        return -self.half, self.half, -self.half, self.half


@dataclass(frozen=True)
class Maze:
    """A maze from a text grid, or from the name of one in `LAYOUTS`.

    cell:     side length of a cell in metres; walls are half as high
    walls_as: "near" simulates only the walls around the robot, "all" every wall (same contacts, slower)
    """

    layout: str
    cell: float = 4.0
    walls_as: str = "near"

    @property
    def name(self) -> str:
        return f"{self.layout} maze" if self.layout in LAYOUTS else "custom maze"

    @cached_property
    def grid(self) -> np.ndarray:
        """Letters [rows, columns]; raises if the text is not a maze."""
        text = LAYOUTS.get(self.layout, self.layout)
        rows = [line.strip() for line in dedent(text).strip().splitlines()]
        if len(rows) == 1 and set(rows[0]) - set(SYMBOLS):
            raise unknown("maze layout", self.layout, LAYOUTS)
        if len({len(row) for row in rows}) != 1:
            raise ConfigError(f"all rows of a maze must have the same length, not {[len(r) for r in rows]}")
        strange = sorted(set("".join(rows)) - set(SYMBOLS))
        if strange:
            raise ConfigError(f"a maze is drawn with {' '.join(SYMBOLS)}, not with {' '.join(strange)}")
        return np.array([list(row) for row in rows])

    def __post_init__(self) -> None:
        bounds.check(self)
        if self.walls_as not in ("near", "all"):
            raise unknown("wall mode", self.walls_as, ("near", "all"))
        if "R" not in self.grid:
            raise ConfigError("this maze has no start: mark at least one cell with R")

    @property
    def wall_cells(self) -> np.ndarray:
        """Wall cells, bool [rows, columns]."""
        return self.grid == "#"

    def cells(self, letters: str) -> np.ndarray:
        found = np.argwhere(np.isin(self.grid, list(letters)))
        if not len(found):
            raise ConfigError(f"this maze has no cell marked {' or '.join(letters)}")
        return (found * self.cell).astype(np.float32)

    def far_goals(self) -> np.ndarray | None:
        """[K] bool: which goal cells its `_eval` layout has too, the far ones; None where there is no such layout."""
        layout = f"{self.layout}_eval"
        if layout not in LAYOUTS:
            return None
        return replace(self, layout=layout).grid[self.grid == "G"] == "G"

    def _box(self) -> tuple[float, float, float]:
        return 0.5 * self.cell, 0.5 * self.cell, 0.25 * self.cell

    def build(self, model: Model, followed: tuple[str, ...]) -> None:
        half = self._box()
        if self.walls_as == "all":
            for k, (i, j) in enumerate(np.argwhere(self.wall_cells)):
                pos = (i * self.cell, j * self.cell, half[2])
                model.add_geom(None, f"wall_{k}", "box", half, pos, contype=1, conaffinity=1, rgba=WALL_RGBA)
            return
        for number, body in enumerate(followed):
            # Each followed body has its own contact bit, so that it collides with its own boxes only.
            bit = 1 << (8 + number)
            model.mark_touching(body, bit)
            count = block_for(model.reach(body, bit) + TRAVEL, self.cell) ** 2
            for k in range(count):
                model.add_geom(None, f"wall_{number}_{k}", "box", half, (0.0, 0.0, -100.0 - k), contype=bit)

    def windows(self, followed: tuple[str, ...]) -> tuple[WallWindow, ...]:
        if self.walls_as == "all":
            return ()
        return tuple(
            WallWindow(f"wall_{number}_", body, self.wall_cells, self.cell, self._box()[2])
            for number, body in enumerate(followed)
        )

    def walls(self) -> tuple[Wall, ...]:
        """Walls with runs of adjacent cells merged into one box."""
        half = self._box()
        boxes = []
        for i, j0, j1 in _runs(self.wall_cells):
            centre = (i * self.cell, 0.5 * (j0 + j1) * self.cell, half[2])
            boxes.append(Wall(centre, (half[0], half[1] + 0.5 * (j1 - j0) * self.cell, half[2])))
        return tuple(boxes)

    def extent(self) -> tuple[float, float, float, float]:
        rows, columns = self.grid.shape
        return -0.5 * self.cell, (rows - 0.5) * self.cell, -0.5 * self.cell, (columns - 0.5) * self.cell


def _runs(cells: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(row, first column, last column) of each run of true cells."""
    for i, row in enumerate(cells):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        yield from ((i, start, end - 1) for start, end in zip(edges[::2], edges[1::2], strict=True))


@dataclass(frozen=True)
class Room:
    """Fixed boxes on the floor."""

    boxes: tuple[Wall, ...]
    name: str = "room"

    def build(self, model: Model, followed: tuple[str, ...]) -> None:
        for k, wall in enumerate(self.boxes):
            model.add_geom(None, f"wall_{k}", "box", wall.half, wall.centre, conaffinity=1, rgba=WALL_RGBA)

    def windows(self, followed: tuple[str, ...]) -> tuple[WallWindow, ...]:
        return ()

    def walls(self) -> tuple[Wall, ...]:
        return self.boxes

    def cells(self, letters: str) -> np.ndarray:
        raise ConfigError("a room has no cells; use a Maze for cell goals or starts")

    def extent(self) -> tuple[float, float, float, float]:
        low = np.min([np.subtract(w.centre, w.half) for w in self.boxes], axis=0)
        high = np.max([np.add(w.centre, w.half) for w in self.boxes], axis=0)
        return float(low[0]), float(high[0]), float(low[1]), float(high[1])


@dataclass(frozen=True)
class Table:
    """The table of an arm whose base is at the origin; with `bins`, two of them side by side along x.

    bins:      x of the centres of the bins; none for an empty table
    depth:     y of their centres
    half:      distance of the inner faces of their walls from the centre
    height:    of the walls
    thickness: of the walls, outwards from their inner faces
    friction:  sliding friction of the walls
    """

    bins: tuple[float, float] | None = None
    depth: float = 0.6
    half: float = 0.135
    height: float = 0.066
    thickness: float = 0.03
    friction: float = 0.2
    name: str = "table"

    def __post_init__(self) -> None:
        bounds.check(self)

    def build(self, model: Model, followed: tuple[str, ...]) -> None:
        """Walls collide with the hand, its fingers and the objects, by explicit pairs."""
        touching = [name for name in model.geom_names if name == "palm" or name.endswith(("_pad", "_geom"))]
        for k, wall in enumerate(self.walls()):
            model.add_geom(None, f"wall_{k}", "box", wall.half, wall.centre, rgba=WALL_RGBA)
            for geom in touching:
                model.add_pair(f"wall_{k}", geom, self.friction)

    def windows(self, followed: tuple[str, ...]) -> tuple[WallWindow, ...]:
        return ()

    def walls(self) -> tuple[Wall, ...]:
        """Both sides along the whole table and the ends of each bin; ends that nearly touch are one wall."""
        if self.bins is None:
            return ()
        left, right = self.bins
        edge, gap = self.half + self.thickness, right - left - 2 * self.half
        if gap <= 0:
            raise ConfigError(
                f"bins {2 * self.half:g} m wide at x = {left:g} and {right:g} overlap; the first is the left one"
            )
        first, last = left - edge, right + edge
        ends = [(first, left - self.half), (right + self.half, last)]
        if gap <= 2 * self.thickness + MIN_GAP:
            ends.append((left + self.half, right - self.half))
        else:
            ends += [(left + self.half, left + edge), (right - edge, right - self.half)]
        near, far = self.depth - self.half, self.depth + self.half
        across = [self._wall(x0, x1, near, far) for x0, x1 in ends]
        sides = [(near - self.thickness, near), (far, far + self.thickness)]
        return (*across, *(self._wall(first, last, y0, y1) for y0, y1 in sides))

    def _wall(self, x0: float, x1: float, y0: float, y1: float) -> Wall:
        top = 0.5 * self.height
        return Wall((0.5 * (x0 + x1), 0.5 * (y0 + y1), top), (0.5 * (x1 - x0), 0.5 * (y1 - y0), top))

    def cells(self, letters: str) -> np.ndarray:
        raise ConfigError("a table has no cells; use a Maze for cell goals or starts")

    def extent(self) -> tuple[float, float, float, float]:
        return -0.75, 0.75, -0.25, 1.0


def _box(x: float, y: float, half_x: float, half_y: float) -> Wall:
    return Wall((x, y, 2.0), (half_x, half_y, 2.0))


# The room of Ant Push: a T-shaped passage blocked by a movable block.
PUSH_ROOM = Room(
    boxes=(
        _box(-4.0, 20.0, 8.0, 8.0),
        _box(8.0, 24.0, 4.0, 4.0),
        _box(20.0, 20.0, 8.0, 8.0),
        _box(-8.0, 4.0, 4.0, 8.0),
        _box(24.0, 8.0, 4.0, 4.0),
        _box(20.0, -4.0, 8.0, 8.0),
        _box(0.0, -8.0, 12.0, 4.0),
    ),
    name="push room",
)
