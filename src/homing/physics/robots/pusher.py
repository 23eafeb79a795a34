"""The pusher's model: an arm of seven joints with a fork for a hand, at a table."""

from __future__ import annotations

from homing.physics.models import Model
from homing.physics.robots import parts
from homing.physics.spring_settings import SpringSettings

X, Y, Z = (1, 0, 0), (0, 1, 0), (0, 0, 1)
# The joints in order: name, place on the link before, axis, limits and damping.
JOINTS = (
    ("shoulder_pan", (0.0, -0.6, 0.0), Z, (-2.2854, 1.714602), 1.0),
    ("shoulder_lift", (0.1, 0.0, 0.0), Y, (-0.5236, 1.3963), 1.0),
    ("upper_arm_roll", (0.0, 0.0, 0.0), X, (-1.5, 1.7), 0.1),
    ("elbow_flex", (0.4, 0.0, 0.0), Y, (-2.3213, 0.0), 0.1),
    ("forearm_roll", (0.0, 0.0, 0.0), X, (-1.5, 1.5), 0.1),
    ("wrist_flex", (0.321, 0.0, 0.0), Y, (-1.094, 0.0), 0.1),
    ("wrist_roll", (0.0, 0.0, 0.0), X, (-1.5, 1.5), 0.1),
)
# The capsules of each link: name, radius, ends.
CAPSULES = {
    "shoulder_pan": (("sp", 0.1, (0, 0, -0.4), (0, 0, 0.2)),),
    "shoulder_lift": (("sl", 0.1, (0, -0.1, 0), (0, 0.1, 0)),),
    "upper_arm_roll": (("uar", 0.02, (-0.1, 0, 0), (0.1, 0, 0)), ("ua", 0.06, (0, 0, 0), (0.4, 0, 0))),
    "elbow_flex": (("ef", 0.06, (0, -0.02, 0), (0, 0.02, 0)),),
    "forearm_roll": (("fr", 0.02, (-0.1, 0, 0), (0.1, 0, 0)), ("fa", 0.05, (0, 0, 0), (0.291, 0, 0))),
    "wrist_flex": (("wf", 0.01, (0, -0.02, 0), (0, 0.02, 0)),),
}
# The fork: the only part of the arm that touches pucks and table.
FORK = (
    ("r_wrist_roll1", (0, -0.1, 0), (0, 0.1, 0)),
    ("r_wrist_roll2", (0, -0.1, 0), (0.1, -0.1, 0)),
    ("r_wrist_roll3", (0, 0.1, 0), (0.1, 0.1, 0)),
)
# The head on the shoulder: name, radius, place, brightness.
HEAD = (
    ("e1", 0.05, (-0.06, 0.05, 0.2), 0.6),
    ("e2", 0.05, (0.06, 0.05, 0.2), 0.6),
    ("e1p", 0.03, (-0.06, 0.09, 0.2), 0.1),
    ("e2p", 0.03, (0.06, 0.09, 0.2), 0.1),
)


def pusher() -> Model:
    """The arm and its table, without gravity."""
    spec = parts.new(
        "pusher",
        degrees=False,
        joint={"armature": 0.04, "damping": 1.0},
        geom={
            "contype": 0,
            "conaffinity": 0,
            "friction": (0.8, 0.1, 0.1),
            "density": 300.0,
            "margin": 0.002,
            "rgba": (0.4, 0.33, 0.26, 1.0),
        },
        timestep=0.01,
        iterations=20,
        gravity=(0.0, 0.0, 0.0),
    )
    table = {"pos": (0, 0.5, -0.325), "contype": 1, "conaffinity": 0, "rgba": (1, 1, 1, 1)}
    parts.floor(spec, (1, 1, 0.1), name="table", **table)
    body = spec.worldbody
    for name, pos, axis, limits, damping in JOINTS:
        body = body.add_body(name=f"r_{name}_link", pos=list(pos))
        parts.hinge(body, f"r_{name}_joint", axis, limits, damping=damping)
        if name == "shoulder_pan":
            for eye, radius, at, bright in HEAD:
                parts.sphere(body, eye, radius, at, rgba=(bright, bright, bright, 1))
        for each in CAPSULES.get(name, ()):
            parts.capsule(body, *each)
    for name, start, end in FORK:
        parts.capsule(body, name, 0.02, start, end, conaffinity=1)
    parts.sphere(body, "tip_arml", 0.01, (0.1, -0.1, 0))
    parts.sphere(body, "tip_armr", 0.01, (0.1, 0.1, 0))
    for name, *_ in JOINTS:
        parts.motor(spec, f"r_{name}_joint", gear=1, limit=2.0)
    return _with_settings(Model(spec))


def _with_settings(model: Model) -> Model:
    model.set_spring(
        SpringSettings(
            joint_stiffness=3000,
            joint_limit_stiffness=2000,
            joint_vel_damping=50,
            joint_ang_damping=10,
            vel_damping=-1,
            mass_scale=1,
            inertia_scale=1,
        )
    )
    model.set_number("solver_maxls", 10)  # of the generalized_brax pipeline
    return model
