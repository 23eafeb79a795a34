"""The one seam to simulators: nothing outside this folder imports one."""

import contextlib
import io
import os
import sys
import warnings

# MuJoCo picks its way of drawing when it is first imported; without a screen only EGL works.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

# MJX and brax print and warn about optional parts when they are first imported.
with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mujoco.mjx  # noqa: F401

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
