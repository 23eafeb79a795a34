"""Goals as points on the floor: parsing, validity checks and grids."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from homing.envs.arenas import Floor
from homing.envs.base import GoalEnv
from homing.envs.bodies.base import Arm, Reachable
from homing.envs.scene import EnvSpec, Scene
from homing.envs.tasks import Reach
from homing.envs.tasks.base import next_goal, point_distances
from homing.errors import ConfigError
from homing.types import Key

LOG = logging.getLogger(__name__)
SEARCH = 200  # grid resolution of the search for free floor
ROUNDING = 1e-6  # metres
EPISODES = 256  # sampled to find how far goals are in training
CANDIDATES = 32


@dataclass(frozen=True)
class GoalSpace:
    """The goal space of one environment; a goal is one or more points on the floor."""

    id: str
    spec: EnvSpec

    @cached_property
    def template(self) -> np.ndarray:
        """A sampled goal [goal_dim]; supplies the entries other than x and y, such as a height."""
        return np.asarray(self.spec.task.draw(jax.random.key(0), self.spec.arena).goal, np.float32)

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
        """`goal` with one of its points moved to x, y."""
        made = np.array(self.template if goal is None else goal, np.float32)
        for name, value in zip("xy", xy, strict=False):
            if name in self.axes[part]:
                made[self.axes[part][name]] = value
        return made

    def points(self, goal: np.ndarray) -> np.ndarray:
        """x and y [..., parts, 2] of goals [..., goal_dim]; a missing axis is 0."""
        goal = np.asarray(goal)
        zero = np.zeros(goal.shape[:-1], goal.dtype)
        pick = lambda axes, name: goal[..., axes[name]] if name in axes else zero
        return np.stack([np.stack([pick(a, "x"), pick(a, "y")], axis=-1) for a in self.axes], axis=-2)

    def parse(self, text: str) -> np.ndarray:
        """Parse a goal: `4,8`, or with all entries `4,8,1.25`; one out of reach is moved, with a warning."""
        per_point = 2 if self.flat else 1
        short, full = per_point * len(self.axes), len(self.template)
        example = ",".join(["4", "8"] * len(self.axes))[: 2 * short - 1]
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            values = []
        if len(values) not in (short, full) or not np.isfinite(values).all():
            raise ConfigError(
                f"a goal of {self.id} is {short} comma-separated numbers, for instance {example}, not {text!r}"
            )
        if len(values) == full and full != short:
            goal = np.array(values, np.float32)
        else:
            goal = self.template
            for k in range(len(self.axes)):
                goal = self.at(values[k * per_point : (k + 1) * per_point], k, goal)
        goal, moved = self.settled(goal)
        for line in moved:
            LOG.warning(line)
        return goal

    @cached_property
    def farthest(self) -> float:
        """Largest distance from start to goal of a robot on open floor, of sampled episodes; else infinite."""
        on_floor = isinstance(self.spec.task, Reach) and isinstance(self.spec.arena, Floor)
        if not on_floor or self.reachable is not None or not self.flat:
            return float("inf")
        draw = lambda key: self.spec.task.draw(key, self.spec.arena)
        drawn = jax.vmap(draw)(jax.random.split(jax.random.key(0), EPISODES))
        start = jnp.zeros(2) if drawn.start is None else drawn.start
        return float(np.max(np.linalg.norm(self.points(np.asarray(drawn.goal))[..., 0, :] - start, axis=-1)))

    def sample(self, key: Key, achieved: np.ndarray) -> np.ndarray:
        """A goal of the task's distribution for a robot under way, no farther than goals were in training.

        On open floor goals lie round the origin: from one of them, another can be twice as far as any from a start.
        Of some candidates the first that is neither reached nor too far is taken, else the nearest not reached.
        """
        draw = lambda key: next_goal(self.spec.task, key, self.spec.arena, jnp.asarray(achieved))
        drawn = jax.vmap(draw)(jax.random.split(key, CANDIDATES))
        distances = point_distances(jnp.asarray(achieved), drawn, self.spec.task.parts)
        goals, gaps = np.asarray(drawn), np.asarray(distances).max(axis=-1)
        fits = (gaps >= self.spec.task.within) & (gaps <= self.farthest + self.spec.task.within)
        if fits.any():
            return goals[np.argmax(fits)]
        return goals[np.argmin(np.where(gaps >= self.spec.task.within, gaps, np.inf))]

    def settled(self, goal: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """The goal with every point that cannot be reached moved to the nearest that can, and a line for each."""
        moved = []
        for part, (x, y) in enumerate(self.points(goal)):
            fault = self.fault((x, y))
            if fault:
                place = self.nearest_free((x, y))
                goal = self.at(place, part, goal)
                moved.append(f"{_place(x, y)} is {fault}; using the nearest free point, {_place(*place)}")
        return goal, moved

    def fault(self, xy: Sequence[float]) -> str:
        """Why a point cannot be reached, in words; empty for one that can."""
        x0, x1, y0, y1 = self.spec.arena.extent()
        x, y = xy
        if not (x0 <= x <= x1 and y0 <= y <= y1):
            return f"outside of {self.id}, where x ranges from {x0:g} to {x1:g} and y from {y0:g} to {y1:g}"
        if self.in_wall(np.array([x, y])):
            return f"inside a wall of {self.id}"
        if self.reachable is not None and not self.in_reach(np.array([x, y])):
            centre, radius = _place(*self.reachable.centre), self.reachable.radius
            return f"out of reach in {self.id}, whose arm reaches {radius:.3g} m from {centre}"
        return ""

    @property
    def reachable(self) -> Reachable | None:
        """Where the goals of an arm's end effector can lie; None for goals without such a limit."""
        body = self.spec.body
        limited = isinstance(body, Arm) and tuple(self.spec.task.goal) == body.reachable.entries
        return body.reachable if limited else None  # type: ignore[attr-defined]

    def in_reach(self, points: np.ndarray) -> np.ndarray:
        """Whether points [..., 2] are within reach of the arm, bool [...]; all of them where there is none."""
        points = np.asarray(points)
        if self.reachable is None:
            return np.ones(points.shape[:-1], bool)
        gap = np.linalg.norm(points - np.asarray(self.reachable.centre), axis=-1)
        return gap <= self.reachable.radius + ROUNDING

    def in_wall(self, points: np.ndarray) -> np.ndarray:
        """Whether points [..., 2] are inside a wall, bool [...]."""
        points = np.asarray(points)
        inside = np.zeros(points.shape[:-1], bool)
        for wall in self.spec.arena.walls():
            inside |= np.all(np.abs(points - wall.centre[:2]) < wall.half[:2], axis=-1)
        return inside

    def nearest_free(self, xy: Sequence[float], margin: float | None = None) -> tuple[float, float]:
        """The free point nearest to x, y within reach, at least `margin` from walls (default: half the threshold)."""
        margin = self._margin if margin is None else margin
        x0, x1, y0, y1 = self.spec.arena.extent()
        here = self._drawn_in(np.clip(xy, (x0, y0), (x1, y1)))
        if not self._blocked(here, margin):
            return float(here[0]), float(here[1])
        free = self.free_points(margin)
        best = free[np.argmin(np.sum(np.square(free - here), axis=-1))]
        return float(best[0]), float(best[1])

    def free_points(self, margin: float | None = None) -> np.ndarray:
        """Free points [K, 2] of a grid, at least `margin` from walls; computed once for each margin."""
        margin = self._margin if margin is None else margin
        if margin not in self._free_cache:
            points = self.grid(SEARCH).reshape(-1, 2)
            free = points[~self._blocked(points, margin) & self.in_reach(points)]
            self._free_cache[margin] = free if len(free) else points
        return self._free_cache[margin]

    def _drawn_in(self, point: np.ndarray) -> np.ndarray:
        """The point [2] of the arm's disc that is nearest; any point where there is no arm."""
        if self.reachable is None or self.in_reach(point):
            return point
        centre = np.asarray(self.reachable.centre)
        offset = point - centre
        return centre + offset * (self.reachable.radius / np.linalg.norm(offset))

    @property
    def _margin(self) -> float:
        return min(0.5 * self.spec.task.within, 0.5)

    @cached_property
    def _free_cache(self) -> dict[float, np.ndarray]:
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


def _place(x: float, y: float) -> str:
    return f"({x:g}, {y:g})"


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
