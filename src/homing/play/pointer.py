"""What the mouse and fingers do in the scene: click the floor, drag a goal, drag the robot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import viser

from homing.play.reporting import report
from homing.play.session import Session

DragEvent = viser.SceneNodeDragEvent[Any]  # of meshes, spheres or cylinders


class Pointer:
    """Handlers of the scene's events; viser awaits coroutines in order, and runs plain functions in threads.

    push_speed: the speed of pushes as the page has it now
    height:     of the plane where goals are set
    """

    def __init__(self, session: Session, push_speed: Callable[[], float]):
        self.session, self.push_speed = session, push_speed
        self.height = 0.0

    def clicked(self, event: viser.SceneClickEvent) -> None:
        try:
            xy = self._on_floor(np.asarray(event.ray_origin), np.asarray(event.ray_direction))
            if xy is not None:
                self.session.submit(lambda: self.session.set_goal(xy, self._nearest_part(xy)))
        except Exception as error:
            report(error, event.client)

    async def goal_dragged(self, event: DragEvent, part: int) -> None:
        try:
            camera = np.asarray(event.client.camera.position)
            xy = self._on_floor(camera, np.asarray(event.end_position) - camera)
            if xy is not None:
                self.session.submit(lambda: self.session.set_goal(xy, part))
        except Exception as error:
            report(error, event.client)

    async def robot_dragged(self, event: DragEvent) -> None:
        try:
            x, y = np.subtract(event.end_position, event.start_position)[:2].tolist()
            if event.phase == "end" and (x or y):
                self.session.submit(lambda: self.session.push((x, y), self.push_speed()))
        except Exception as error:
            report(error, event.client)

    def push_anywhere(self) -> None:
        angle = np.random.default_rng().uniform(-np.pi, np.pi)
        self.session.push((float(np.cos(angle)), float(np.sin(angle))), self.push_speed())

    def _on_floor(self, origin: np.ndarray, direction: np.ndarray) -> tuple[float, float] | None:
        """Where a ray meets the height of goals; None if it points away or is not finite."""
        if not (np.isfinite(origin).all() and np.isfinite(direction).all()) or abs(direction[2]) < 1e-9:
            return None
        distance = (self.height - origin[2]) / direction[2]
        if not 0 < distance < np.inf:
            return None
        x, y = (origin + distance * direction)[:2]
        return float(x), float(y)

    def _nearest_part(self, xy: tuple[float, float]) -> int:
        points = self.session.sim.space.points(self.session.sim.goal)
        return int(np.argmin(np.linalg.norm(points - np.asarray(xy), axis=-1)))
