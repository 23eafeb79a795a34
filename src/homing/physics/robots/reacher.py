"""The reacher's model: a planar arm of two links."""

from __future__ import annotations

from homing.physics.models import Model
from homing.physics.robots import parts
from homing.physics.spring_settings import SpringSettings

SIDES = {"S": (-1, -1, 1, -1), "E": (1, -1, 1, 1), "N": (-1, 1, 1, 1), "W": (-1, -1, -1, 1)}
HALF = 0.3  # of the frame around the arm's workspace, which nothing collides with


def reacher() -> Model:
    """The arm and the frame around its workspace."""
    spec = parts.new(
        "reacher",
        degrees=False,
        joint={"armature": 1.0, "damping": 1.0},
        geom={
            "contype": 0,
            "conaffinity": 0,
            "friction": (1.0, 0.1, 0.1),
            "rgba": (0.4, 0.33, 0.26, 1.0),
        },
        timestep=0.01,
    )
    parts.floor(spec, (1, 1, 10), name="ground", conaffinity=0, rgba=(1, 1, 1, 1))
    for side, (x, y, to_x, to_y) in SIDES.items():
        start, end = (HALF * x, HALF * y, 0.01), (HALF * to_x, HALF * to_y, 0.01)
        parts.capsule(spec.worldbody, f"side{side}", 0.02, start, end)
    parts.capsule(spec.worldbody, "root", 0.011, (0, 0, 0), (0, 0, 0.02))
    upper = spec.worldbody.add_body(name="body0", pos=[0, 0, 0.01])
    parts.capsule(upper, "link0", 0.01, (0, 0, 0), (0.1, 0, 0))
    parts.hinge(upper, "joint0", (0, 0, 1), None)
    lower = upper.add_body(name="body1", pos=[0.1, 0, 0])
    parts.hinge(lower, "joint1", (0, 0, 1), (-3.0, 3.0))
    parts.capsule(lower, "link1", 0.01, (0, 0, 0), (0.1, 0, 0))
    parts.sphere(lower, "fingertip", 0.01, (0.11, 0, 0))
    for joint in ("joint0", "joint1"):
        parts.motor(spec, joint, gear=200, limit=1.0)
    model = Model(spec)
    model.set_rest((0.0, 0.0))
    model.set_spring(
        SpringSettings(joint_stiffness=1000, joint_vel_damping=3, joint_ang_damping=0.1, inertia_scale=1)
    )
    model.set_number("solver_maxls", 5)  # of the generalized_brax pipeline
    return model
