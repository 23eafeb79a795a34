"""The one seam to simulators: nothing outside this folder imports one."""

from homing.physics.engine import EULER_DAMPING_OFF, PIPELINES, Engine, Layout, Links, Timing, load
from homing.physics.models import Model
from homing.physics.walls import WallWindow, block_for

__all__ = [
    "EULER_DAMPING_OFF",
    "PIPELINES",
    "Engine",
    "Layout",
    "Links",
    "Model",
    "Timing",
    "WallWindow",
    "block_for",
    "load",
]
