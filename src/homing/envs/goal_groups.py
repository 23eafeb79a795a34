"""Groups of goals by which an evaluation is broken down: cells of a maze, or bins of the initial distance."""

from __future__ import annotations

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np

from homing.envs.arenas import FREE, Maze
from homing.envs.cell_pairs import CellPairs
from homing.envs.goals import Cells, FreeCells, Points
from homing.envs.scene import EnvSpec
from homing.types import Array

# Edges of distance bins, in thresholds of success.
DISTANCES = (0.0, 4.0, 8.0, 16.0, 32.0, np.inf)


@dataclasses.dataclass(frozen=True)
class GoalGroups:
    """K groups of goals; exactly one of `points` and `edges` is set."""

    labels: tuple[str, ...]
    points: np.ndarray | None = None  # [K, D]: a goal belongs to the nearest
    edges: np.ndarray | None = None  # [K + 1]: a goal belongs to a bin of its distance from the start
    far: np.ndarray | None = None  # [K] bool: goals of the maze's layout for evaluation, where it has one

    def coordinates(self) -> dict[str, np.ndarray]:
        """Where the groups lie, for pictures: x and y of points, 0 where they lie on a line, or the nearer ends of
        distance bins, each [K]."""
        if self.points is not None:
            on_line = self.points.shape[1] == 1
            return {"x": self.points[:, 0], "y": 0 * self.points[:, 0] if on_line else self.points[:, 1]}
        assert self.edges is not None
        return {"distance": self.edges[:-1]}

    def of(self, goal: Array, distance: Array) -> Array:
        """[N] int32: the group of each goal [N, goal_dim], `distance` [N] away at the start."""
        if self.points is not None:
            gap = goal[:, None, : self.points.shape[1]] - jnp.asarray(self.points, jnp.float32)
            return jnp.argmin(jnp.sum(jnp.square(gap), axis=-1), axis=1).astype(jnp.int32)
        assert self.edges is not None
        inner = jnp.asarray(self.edges[1:-1], jnp.float32)
        return jnp.sum(distance[:, None] >= inner, axis=1).astype(jnp.int32)


def goal_groups(spec: EnvSpec) -> GoalGroups:
    """Cells or points where the task has a finite set of goals, else bins of the distance."""
    goals = getattr(spec.task, "goals", None)
    far = None
    if isinstance(goals, Cells):
        far = spec.arena.far_goals() if isinstance(spec.arena, Maze) and goals.letter == "G" else None
        points = np.asarray(spec.arena.cells(goals.letter), np.float32)
    elif isinstance(goals, FreeCells | CellPairs):
        points = np.asarray(spec.arena.cells(FREE), np.float32)
    elif isinstance(goals, Points) and goals.spread == 0:
        points = np.asarray(goals.points, np.float32)
    else:
        points = np.zeros((0, 2), np.float32)
    if len(points) > 1:
        labels = tuple(", ".join(f"{x:g}" for x in point) for point in points)
        return GoalGroups(labels, points=points, far=far)
    edges = spec.task.within * np.asarray(DISTANCES)
    names = [f"{low:g}–{high:g}" for low, high in itertools.pairwise(edges[:-1])]
    return GoalGroups((*names, f"≥ {edges[-2]:g}"), edges=edges)
