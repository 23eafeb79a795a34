"""Figures of trajectories and critic maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from homing.envs.goal_space import GoalSpace
from homing.errors import ConfigError
from homing.viz.critic_map import CriticMap, Episodes
from homing.viz.video import grid_shape

FORMATS = (".png", ".pdf", ".svg")
REACHED, MISSED, ROBOT = "#1f6fb4", "#e07b39", "#8a8f98"
WALL, GROUND, GOAL, START = "#5c7389", "#f4f5f7", "#1a9850", "#22262b"
MANY = 12  # more goals than this are drawn as outlines
SIDE = 4.2  # size of a panel in inches


def check_output(path: str | Path) -> Path:
    """The path of a figure; raises for an unsupported file format."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ConfigError(f"a figure ends in {', '.join(FORMATS)}, not in {path.suffix or path.name!r}")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give a file in it")
    return path


def save_paths(panels: Sequence[Episodes], out: str | Path) -> Path:
    """Write trajectories over the layout, coloured by success."""
    figure, axes = _sheet(len(panels), [panel.space for panel in panels])
    for axis, panel in zip(axes, panels, strict=True):
        _paths(axis, panel) if panel.space.flat else _courses(axis, panel)
        axis.set_title(
            f"{panel.label}\nreached {panel.reached.sum()} of {len(panel.reached)} goals", fontsize=9
        )
    handles = [
        Line2D([], [], color=REACHED, label="goal reached"),
        Line2D([], [], color=MISSED, label="goal missed"),
        Line2D([], [], color=START, marker="o", ls="", ms=4, label="start"),
        Line2D([], [], color=GOAL, marker="o", ls="", ms=8, mfc="none", label="goal"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return _save(figure, out)


def _paths(axis: Axes, panel: Episodes) -> None:
    _floor(axis, panel.space)
    points = panel.space.points(panel.track)  # [T + 1, N, parts, 2]
    order = np.argsort(panel.reached)[::-1]  # failures are drawn on top
    if panel.space.spec.task.props:
        lines = [panel.robot[: panel.length[n], n] for n in order]
        axis.add_collection(LineCollection(lines, colors=ROBOT, linewidths=0.5, alpha=0.5))
    for part in range(points.shape[2]):
        lines = [points[: panel.length[n] + 1, n, part] for n in order]
        colours = [REACHED if panel.reached[n] else MISSED for n in order]
        axis.add_collection(LineCollection(lines, colors=colours, linewidths=0.9, alpha=0.65))
        axis.plot(*points[0, :, part].T, "o", color=START, ms=2.5, zorder=4)
    goals = np.unique(np.round(panel.goal, 4), axis=0)
    for goal in goals:
        _goal(axis, panel.space, goal, filled=len(goals) <= MANY)


def _courses(axis: Axes, panel: Episodes) -> None:
    """Position over time, for one-dimensional goals."""
    points, goals = panel.space.points(panel.track)[..., 0, 0], panel.space.points(panel.goal)[:, 0, 0]
    time = np.arange(len(points)) * panel.dt
    for n in np.argsort(panel.reached)[::-1]:
        until = panel.length[n] + 1
        colour = REACHED if panel.reached[n] else MISSED
        axis.plot(time[:until], points[:until, n], color=colour, lw=0.9, alpha=0.65)
    for goal in np.unique(np.round(goals, 4)):
        axis.axhline(goal, color=GOAL, lw=1.2, ls="--")
    axis.set(xlabel="seconds", ylabel="x in metres")


def save_maps(panels: Sequence[CriticMap], out: str | Path) -> Path:
    """Write maps of critics."""
    figure, axes = _sheet(len(panels), [panel.space for panel in panels], wider=1.25)
    for axis, panel in zip(axes, panels, strict=True):
        what = (
            "value of goals, for the state at the dot"
            if panel.over == "goals"
            else "value of states, for the goal"
        )
        axis.set_title(f"{panel.label}\n{what}", fontsize=9)
        _map(figure, axis, panel) if panel.space.flat else _profile(axis, panel)
    return _save(figure, out)


def _map(figure: Figure, axis: Axes, panel: CriticMap) -> None:
    _floor(axis, panel.space)
    colours = "viridis_r" if panel.scale.near_is_low else "viridis"
    extent = panel.space.spec.arena.extent()
    low, high = (
        f(panel.values, where=panel.free, initial=v) for f, v in ((np.min, np.inf), (np.max, -np.inf))
    )
    # Drawn under walls too, to avoid gaps at their edges; the colour range is that of free positions.
    image = axis.imshow(
        panel.values, origin="lower", extent=extent, cmap=colours, zorder=0.5, vmin=low, vmax=high
    )
    if high > low:
        grid = np.moveaxis(panel.places, -1, 0)
        levels = np.linspace(low, high, 12)[1:-1]
        axis.contour(*grid, panel.values, levels, colors="white", linewidths=0.5, alpha=0.6)
    bar = figure.colorbar(image, ax=axis, shrink=0.85, pad=0.02)
    bar.set_label(panel.scale.name, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    if panel.goal is not None:
        _goal(axis, panel.space, panel.goal)
    else:
        axis.plot(*panel.at, "o", color="white", mec=START, ms=7, mew=1.5, zorder=5)


def _profile(axis: Axes, panel: CriticMap) -> None:
    axis.plot(panel.places[0, :, 0], panel.values[0], color=REACHED)
    mark = panel.at[0] if panel.goal is None else panel.space.points(panel.goal)[0, 0]
    axis.axvline(mark, color=START if panel.goal is None else GOAL, ls="--", lw=1.2)
    axis.set(xlabel="x in metres", ylabel=panel.scale.name)


def _floor(axis: Axes, space: GoalSpace) -> None:
    """The floor and its walls, to scale."""
    x0, x1, y0, y1 = space.spec.arena.extent()
    axis.set(xlim=(x0, x1), ylim=(y0, y1), aspect="equal", facecolor=GROUND)
    axis.set_xlabel("x in metres", fontsize=8)
    axis.set_ylabel("y in metres", fontsize=8)
    axis.tick_params(labelsize=7)
    for wall in space.spec.arena.walls():
        corner = (wall.centre[0] - wall.half[0], wall.centre[1] - wall.half[1])
        axis.add_patch(
            Rectangle(corner, 2 * wall.half[0], 2 * wall.half[1], facecolor=WALL, edgecolor=WALL, zorder=3)
        )


def _goal(axis: Axes, space: GoalSpace, goal: np.ndarray, filled: bool = True) -> None:
    """The success region of a goal; an outline if there are many, so as not to hide trajectories."""
    look = {"facecolor": GOAL + "30", "lw": 1.2} if filled else {"facecolor": "none", "lw": 0.6, "alpha": 0.6}
    for x, y in space.points(goal):
        axis.add_patch(Circle((x, y), space.spec.task.within, edgecolor=GOAL, zorder=5, **look))


def _sheet(count: int, spaces: Sequence[GoalSpace], wider: float = 1.0) -> tuple[Figure, list[Axes]]:
    x0, x1, y0, y1 = spaces[0].spec.arena.extent()
    aspect = np.clip((x1 - x0) / (y1 - y0), 0.5, 2.0) if spaces[0].flat else 1.4
    columns, rows = grid_shape(count, aspect * wider)
    figure = Figure(figsize=(SIDE * aspect * wider * columns, (SIDE + 0.5) * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, list(axes[:count])


def _save(figure: Figure, out: str | Path) -> Path:
    path = check_output(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    return path
