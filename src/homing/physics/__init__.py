"""The one seam to simulators: nothing outside this folder imports one."""

import os
import sys

# MuJoCo picks its way of drawing when it is first imported; without a screen only EGL works.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

from homing.physics.engine import (
    EULER_DAMPING_OFF,
    PIPELINES,
    THEIRS,
    Engine,
    Layout,
    Links,
    Timing,
    load,
)
from homing.physics.models import Model
from homing.physics.walls import WallWindow, block_for

__all__ = [
    "EULER_DAMPING_OFF",
    "PIPELINES",
    "THEIRS",
    "Engine",
    "Layout",
    "Links",
    "Model",
    "Timing",
    "WallWindow",
    "block_for",
    "load",
]
