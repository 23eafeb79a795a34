"""Custom numbers of a compiled model, and rounding to float32."""

from __future__ import annotations

import mujoco
import numpy as np

REST_POSE = "init_qpos"  # the custom number that holds the rest pose


def numerics(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Custom numbers by name."""
    found = [model.numeric(i) for i in range(model.nnumeric)]
    return {number.name: np.asarray(number.data) for number in found}


def rest_pose(model: mujoco.MjModel) -> np.ndarray:
    """The rest pose named in the model, or MuJoCo's."""
    return np.array(numerics(model).get(REST_POSE, model.qpos0))


def rounded(x: object) -> np.ndarray:
    """Values as float32 has them, in float64."""
    return np.asarray(x, np.float32).astype(float)
