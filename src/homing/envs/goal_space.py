"""Goals as points on the floor or above it: parsing, validity checks and grids."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.envs.base import GoalEnv
from homing.envs.bodies.base import Arm
from homing.envs.goals import Around
from homing.envs.regions import Reachable, Region
from homing.envs.scene import EnvSpec, Scene
from homing.errors import ConfigError

LOG = logging.getLogger(__name__)
Place = Sequence[float] | np.ndarray
"""x, y or x, y, z."""
STAGE = 0.8  # of the largest distance of training: farther goals are approached in stages of that length
SEARCH = 200  # grid resolution of the search for free floor


@dataclass(frozen=True)
class GoalSpace:
    """The goal space of one environment; a goal is one or more points on the floor."""

    id: str
    spec: EnvSpec

    @cached_property
    def template(self) -> np.ndarray:
        """A sampled goal [goal_dim]; supplies the entries other than x and y, such as a height."""
        # In one program: there are dozens of operations, and each by itself takes as long to compile.
        draw = jax.jit(lambda key: self.spec.task.draw(key, self.spec.arena).goal)
        return np.asarray(draw(jax.random.key(0)), np.float32)

    @cached_property
    def axes(self) -> tuple[dict[str, int], ...]:
        """For each point of a goal, the indices of its x, y and z."""
        names = np.reshape(self.spec.task.goal, (self.spec.task.parts, -1))
        size = names.shape[1]
        return tuple({n[-1]: k * size + i for i, n in enumerate(part)} for k, part in enumerate(names))

    @property
    def flat(self) -> bool:
        """Whether goals have both x and y."""
        return all({"x", "y"} <= set(axes) for axes in self.axes)

    def at(self, xy: Sequence[float], part: int = 0, goal: np.ndarray | None = None) -> np.ndarray:
        """`goal` with one of its points moved to x, y or x, y, z."""
        made = np.array(self.template if goal is None else goal, np.float32)
        for name, value in zip("xyz", xy, strict=False):
            if name in self.axes[part]:
                made[self.axes[part][name]] = value
        return made

    def points(self, goal: np.ndarray) -> np.ndarray:
        """x and y [..., parts, 2] of goals [..., goal_dim]; a missing axis is 0."""
        goal = np.asarray(goal)
        zero = np.zeros(goal.shape[:-1], goal.dtype)
        pick = lambda axes, name: goal[..., axes[name]] if name in axes else zero
        return np.stack([np.stack([pick(a, "x"), pick(a, "y")], axis=-1) for a in self.axes], axis=-2)

    def place(self, goal: np.ndarray, part: int = 0) -> np.ndarray:
        """x, y and, where goals have heights, z of one point of a goal [goal_dim]; a missing x or y is 0."""
        axes = self.axes[part]
        return np.array([goal[axes[n]] if n in axes else 0.0 for n in "xyz" if n in axes or n != "z"])

    def moved(
        self, goal: np.ndarray, place: Sequence[float], part: int = 0, margin: float | None = None
    ) -> np.ndarray:
        """`goal` with one of its points moved to the good place nearest to x, y or x, y, z."""
        here = self.place(self.at(place, part, goal), part)
        return self.at(self.nearest_free(here, margin, part), part, goal)

    @property
    def farthest(self) -> float:
        """The largest distance of a goal from the robot in training, on open floor; infinite elsewhere."""
        goals = getattr(self.spec.task, "goals", None)
        return goals.most if isinstance(goals, Around) and not self.spec.arena.walls() else np.inf

    def aim(self, achieved: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """What to tell a policy: the goal, or on open floor a place on the straight way to one too far away."""
        columns = [self.axes[0][name] for name in "xy" if name in self.axes[0]]
        gap = goal[columns] - achieved[columns]
        distance = float(np.linalg.norm(gap))
        if distance <= self.farthest:
            return goal
        aim = np.array(goal)
        aim[columns] = achieved[columns] + gap * (STAGE * self.farthest / distance)
        return aim

    def parse(self, text: str) -> np.ndarray:
        """Parse a goal: `4,8`, or with all entries `4,8,1.25`; one out of reach is moved, with a warning."""
        per_point = 2 if self.flat else 1
        short, full = per_point * len(self.axes), len(self.template)
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            values = []
        if len(values) not in (short, full) or not np.isfinite(values).all():
            shown = np.concatenate([self.place(self.template, k)[:per_point] for k in range(len(self.axes))])
            example = ",".join(f"{value:.2f}" for value in shown)
            what = "one number" if short == 1 else f"{short} comma-separated numbers"
            every = "" if full == short else f" (or all {full})"
            raise ConfigError(f"a goal of {self.id} is {what}{every}, for instance {example}, not {text!r}")
        if len(values) == full and full != short:
            goal = np.array(values, np.float32)
        else:
            goal = self.template
            for k in range(len(self.axes)):
                goal = self.at(values[k * per_point : (k + 1) * per_point], k, goal)
        return self.commanded(goal)

    def commanded(self, goals: np.ndarray) -> np.ndarray:
        """Goals [..., goal_dim] with points that cannot be reached moved to the nearest that can, with warnings."""
        found = [self.settled(goal) for goal in goals.reshape(-1, goals.shape[-1])]
        for line in dict.fromkeys(line for _, moved in found for line in moved):
            LOG.warning(line)
        return np.stack([goal for goal, _ in found]).reshape(goals.shape)

    def settled(self, goal: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """The goal with every point that cannot be reached moved to the nearest that can, and a line for each."""
        moved = []
        for part in range(len(self.axes)):
            here = self.place(goal, part)
            fault = self.fault(here, part)
            if fault:
                place = self.nearest_free(here, part=part)
                goal = self.at(place, part, goal)
                count = 2 if np.allclose(here[2:], place[2:]) else 3
                moved.append(
                    f"{_place(here[:count])} is {fault}; using the nearest free point, {_place(place[:count])}"
                )
        return goal, moved

    def fault(self, place: Place, part: int = 0) -> str:
        """Why a point x, y or x, y, z cannot be reached, in words; empty for one that can."""
        x0, x1, y0, y1 = self.spec.arena.extent()
        x, y = place[:2]
        if not (x0 <= x <= x1 and y0 <= y <= y1):
            return f"outside of {self.id}, where x ranges from {x0:g} to {x1:g} and y from {y0:g} to {y1:g}"
        if self.in_wall(np.array([x, y])):
            return f"inside a wall of {self.id}"
        region = self.regions[part]
        if region is not None and not self.in_reach(np.asarray(place), part):
            return f"out of reach in {self.id}, whose arm {region.words}"
        return ""

    @cached_property
    def regions(self) -> tuple[Region | None, ...]:
        """For each point of a goal, where an arm can bring it; None without such a limit."""
        body = self.spec.body
        known = {region.entries: region for region in body.regions} if isinstance(body, Arm) else {}
        parts = np.reshape(self.spec.task.goal, (self.spec.task.parts, -1))
        return tuple(known.get(tuple(map(str, names))) for names in parts)

    @cached_property
    def _inside(self) -> tuple[Any, ...]:
        """For each point of a goal, whether points are in its region, as one program."""
        return tuple(None if region is None else jax.jit(region.inside) for region in self.regions)

    @property
    def reachable(self) -> Reachable | None:
        """The disc that goals of one point lie in, where an arm limits them to one."""
        region = self.regions[0]
        return region if isinstance(region, Reachable) else None

    def in_reach(self, points: np.ndarray, part: int = 0) -> np.ndarray:
        """Whether points [..., 2 or 3] are within reach of the arm, bool [...]; all of them where there is none.

        Points without a height are taken at that of a sampled goal.
        """
        points, region = np.asarray(points, np.float32), self.regions[part]
        if region is None:
            return np.ones(points.shape[:-1], bool)
        heights = self.place(self.template, part)[2:]
        if points.shape[-1] == 2 and len(heights):
            points = np.concatenate(
                [points, np.full((*points.shape[:-1], 1), heights[0], np.float32)], axis=-1
            )
        return np.asarray(self._inside[part](points))

    def in_wall(self, points: np.ndarray) -> np.ndarray:
        """Whether points [..., 2] are inside a wall or on its surface, bool [...]."""
        points = np.asarray(points)
        inside = np.zeros(points.shape[:-1], bool)
        for wall in self.spec.arena.walls():
            inside |= np.all(np.abs(points - wall.centre[:2]) <= wall.half[:2], axis=-1)
        return inside

    def nearest_free(self, place: Place, margin: float | None = None, part: int = 0) -> tuple[float, ...]:
        """The free point nearest to x, y or x, y, z within reach, at least `margin` from walls.

        The default margin is half the threshold.
        """
        margin = self._margin if margin is None else margin
        x0, x1, y0, y1 = self.spec.arena.extent()
        here = np.array(place, float)
        here[:2] = np.clip(here[:2], (x0, y0), (x1, y1))
        region = self.regions[part]
        if region is not None and not self.in_reach(here, part):
            here = region.nearest(here)
        if self._blocked(here[:2], margin):
            free = self.free_points(margin, part)
            here[:2] = free[np.argmin(np.sum(np.square(free - here[:2]), axis=-1))]
        return tuple(float(value) for value in here)

    def free_points(self, margin: float | None = None, part: int = 0) -> np.ndarray:
        """Free points [K, 2] of a grid, at least `margin` from walls; computed once for each margin."""
        margin = self._margin if margin is None else margin
        if (margin, part) not in self._free_cache:
            points = self.grid(SEARCH).reshape(-1, 2)
            free = points[~self._blocked(points, margin) & self.in_reach(points, part)]
            self._free_cache[margin, part] = free if len(free) else points
        return self._free_cache[margin, part]

    @property
    def _margin(self) -> float:
        return min(0.5 * self.spec.task.within, 0.5)

    @cached_property
    def _free_cache(self) -> dict[tuple[float, int], np.ndarray]:
        return {}

    def _blocked(self, points: np.ndarray, margin: float) -> np.ndarray:
        around = [(0.0, 0.0), (margin, 0.0), (-margin, 0.0), (0.0, margin), (0.0, -margin)]
        return np.asarray(np.any([self.in_wall(np.asarray(points) + step) for step in around], axis=0))

    def grid(self, size: int) -> np.ndarray:
        """Centres [rows, columns, 2] of a square grid over the arena, `size` cells along its longer side.

        Rows run along y and columns along x, as in an image.
        """
        x0, x1, y0, y1 = self.spec.arena.extent()
        side = max(x1 - x0, y1 - y0) / size
        columns, rows = max(1, round((x1 - x0) / side)), max(1, round((y1 - y0) / side))
        xs = x0 + (np.arange(columns) + 0.5) * (x1 - x0) / columns
        ys = y0 + (np.arange(rows) + 0.5) * (y1 - y0) / rows
        return np.stack(np.meshgrid(xs, ys), axis=-1).astype(np.float32)


def _place(place: Place) -> str:
    return f"({', '.join(f'{value:.4g}' for value in place)})"


def goal_space(env: GoalEnv) -> GoalSpace:
    """The goal space of an environment."""
    return GoalSpace(env.spec.id, env.scene.spec)


def free_entries(scene: Scene) -> np.ndarray:
    """Which goal entries equal one coordinate of q that affects no other state entry, bool [goal_dim].

    Such an entry can be overwritten in a state and the result is still a valid state: an ant's position on the
    floor, but not the tip of an arm, which depends on its joint angles.
    """
    step, layout = 0.125, scene.engine.layout
    q = np.tile(layout.init_q, (layout.q_size + 1, 1))
    q[1:] += step * np.eye(layout.q_size, dtype=np.float32)
    zeros = lambda size: jnp.zeros((len(q), size), jnp.float32)
    observed = jax.jit(lambda q, qd, ctrl: scene.observe(scene.engine.init(q, qd), ctrl))
    states = np.asarray(observed(q, zeros(layout.qd_size), zeros(layout.act_size)))
    change = states[1:] - states[0]
    goal = scene.indices(scene.spec.task.goal)
    alone = [
        any(np.allclose(row, step * (np.arange(len(row)) == i), atol=1e-4) for row in change) for i in goal
    ]
    return np.array(alone)
