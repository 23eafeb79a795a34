"""Images of environments under way."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property

import jax
import numpy as np

from homing.bounds import check_values
from homing.envs.base import GoalEnv
from homing.errors import unknown
from homing.physics import State
from homing.physics.drawing import Camera, Drawer
from homing.physics.engine import Links
from homing.types import EnvState
from homing.viz.render import Film, camera_for, drawer_for, goal_markers

RENDER_MODES = ("rgb_array",)


def check_render_mode(render_mode: str | None, width: int, height: int) -> None:
    """Refuse an unknown mode and impossible sizes."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise unknown("render mode", render_mode, RENDER_MODES)
    check_values(width=width, height=height)


class Frames:
    """Draws environments of a batch; the camera of each stays where it is for the length of an episode.

    The renderer is made with the first image.
    """

    def __init__(self, env: GoalEnv, width: int, height: int):
        self._env, self._size = env, (width, height)
        self._cameras: dict[int, Camera] = {}
        self._drawer: Drawer | None = None

    @cached_property
    def _links(self) -> Callable[[State], Links]:
        return jax.jit(self._env.scene.engine.links)

    def close(self) -> None:
        """Free the renderer; another image makes a new one."""
        self._cameras.clear()
        if self._drawer is not None:
            self._free()
            self._drawer = None

    def forget(self, envs: np.ndarray) -> None:
        """New episodes have begun in these environments [K]."""
        for env in envs:
            self._cameras.pop(int(env), None)

    def draw(self, state: EnvState) -> tuple[np.ndarray, ...]:
        """An image [height, width, 3] of each environment."""
        drawer = self._opened()
        links = self._links(state.physics)
        pos, rot, goal = (np.asarray(x) for x in (links.pos, links.rot, state.obs.goal))
        return tuple(self._draw(drawer, n, pos[n], rot[n], goal[n]) for n in range(len(pos)))

    def _opened(self) -> Drawer:
        if self._drawer is None:
            self._drawer = drawer_for(self._env.scene.spec, *self._size)
            # Also at exit: MuJoCo's renderer cannot free itself once modules are being torn down.
            self._free = weakref.finalize(self, self._drawer.close)
        return self._drawer

    def _draw(
        self, drawer: Drawer, env: int, pos: np.ndarray, rot: np.ndarray, goal: np.ndarray
    ) -> np.ndarray:
        if env not in self._cameras:
            nothing = np.zeros(1)
            self._cameras[env] = camera_for(
                self._env.scene.spec, Film(pos[None], rot[None], goal[None], nothing, nothing)
            )
        return drawer.draw(pos, rot, self._cameras[env], goal_markers(self._env.scene.spec, goal))
