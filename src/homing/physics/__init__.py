"""Physics engines behind one interface; the only package that imports a simulator."""

import os
import sys

# MuJoCo selects its rendering backend on first import; without a display only EGL works.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

from homing.physics.camera import Camera
from homing.physics.engine import (
    EULER_DAMPING_OFF,
    PIPELINES,
    REFERENCE_PIPELINES,
    Engine,
    Layout,
    Links,
    State,
    Timing,
    load,
)
from homing.physics.models import Model
from homing.physics.walls import WallWindow, block_for

__all__ = [
    "EULER_DAMPING_OFF",
    "PIPELINES",
    "REFERENCE_PIPELINES",
    "Camera",
    "Engine",
    "Layout",
    "Links",
    "Model",
    "State",
    "Timing",
    "WallWindow",
    "block_for",
    "load",
]
