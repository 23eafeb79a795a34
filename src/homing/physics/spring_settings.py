"""Settings of the spring pipeline that MuJoCo has no fields for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import mujoco
import numpy as np

from homing.physics.numerics import numerics, rounded

Number = float | tuple[float, ...] | np.ndarray


@dataclass(frozen=True)
class SpringSettings:
    """Springs, dampings and scales; a model carries them as custom numerics (`NUMERICS`).

    joint_stiffness:       of the springs that hold links together at joints; one value, or one for each link
    joint_limit_stiffness: of the springs at joint limits, as above
    joint_vel_damping:     damping of the relative velocity at joints, as above
    joint_ang_damping:     damping of the relative angular velocity at joints, as above
    vel_damping:           rate at which the velocity of every link grows (negative: decays)
    ang_damping:           the same for the angular velocity
    push_out:              fraction of a penetration that a contact removes in a physics step (Baumgarte)
    mass_scale:            masses are raised to the power 1 − mass_scale; 1 makes them all equal
    inertia_scale:         the same for inertias
    elasticity:            restitution of contacts; one value, or one for each geom
    """

    joint_stiffness: Number = 2000.0
    joint_limit_stiffness: Number = 1000.0
    joint_vel_damping: Number = 0.0
    joint_ang_damping: Number = 0.0
    vel_damping: float = 0.0
    ang_damping: float = 0.0
    push_out: float = 0.1
    mass_scale: float = 0.0
    inertia_scale: float = 0.0
    elasticity: Number = 0.0


# The custom numeric of each setting, by the names that brax reads from MJCF files.
NUMERICS = {
    "joint_stiffness": "constraint_stiffness",
    "joint_limit_stiffness": "constraint_limit_stiffness",
    "joint_vel_damping": "constraint_vel_damping",
    "joint_ang_damping": "constraint_ang_damping",
    "vel_damping": "vel_damping",
    "ang_damping": "ang_damping",
    "push_out": "baumgarte_erp",
    "mass_scale": "spring_mass_scale",
    "inertia_scale": "spring_inertia_scale",
    "elasticity": "elasticity",
}
PER_LINK = ("joint_stiffness", "joint_limit_stiffness", "joint_vel_damping", "joint_ang_damping")
PER_GEOM = ("elasticity",)


def read(model: mujoco.MjModel) -> SpringSettings:
    """The settings of a compiled model, with one value for each link or geom where they have one."""
    numbers = numerics(model)
    found = {}
    for field in fields(SpringSettings):
        value = rounded(numbers.get(NUMERICS[field.name], field.default))
        size = _size(model, field.name)
        found[field.name] = value.item() if size is None else np.broadcast_to(value, (size,)).copy()
    return SpringSettings(**found)


def unsupported(model: mujoco.MjModel) -> Iterator[str]:
    """Reasons why the settings of a model would be read incorrectly."""
    if model.ntuple:
        yield "it has custom tuples"
    numbers = numerics(model)
    for field, name in NUMERICS.items():
        size = _size(model, field) or 1
        if name in numbers and numbers[name].size not in (1, size):
            yield f"custom number {name} has {numbers[name].size} values, not 1 or {size}"


def _size(model: mujoco.MjModel, field: str) -> int | None:
    """Number of values of a setting; None for a scalar."""
    return model.nbody - 1 if field in PER_LINK else model.ngeom if field in PER_GEOM else None
