"""The height of an arm's goals: a slider, since a click on the page sets x and y."""

from __future__ import annotations

import numpy as np

from homing.envs.goal_space import GoalSpace
from homing.play.controls import Control, Controls
from homing.play.session import Session

STEP = 0.01  # metres


def height_controls(add: Controls, session: Session) -> list[Control]:
    """A slider for each point of the goal whose height can be chosen; none where goals have a fixed height."""
    space, goal = session.sim.space, session.sim.goal
    sliders: list[Control] = []
    for part, region in enumerate(space.regions):
        if region is None or region.heights is None or "z" not in space.axes[part]:
            continue
        low, high = region.heights
        at = min(max(float(space.place(goal, part)[2]), low), high)
        label = "Goal height" if len(space.regions) == 1 else f"Goal height {part + 1}"
        sliders.append(add.slider(label, (low, high), STEP, at, lambda z, k=part: _raise(session, z, k)))
    return sliders


def _raise(session: Session, z: float, part: int) -> None:
    def move() -> None:
        x, y = session.sim.space.place(session.sim.goal, part)[:2].tolist()
        session.set_goal((x, y, z), part)

    session.submit(move)


def click_height(space: GoalSpace, goal: np.ndarray, ground: float) -> float:
    """The height at which a click is meant: that of the goal's first point where it can be chosen."""
    region = space.regions[0]
    return ground if region is None or region.heights is None else float(space.place(goal)[2])
