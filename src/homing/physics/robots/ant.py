"""The ant's model: a ball with four legs of three capsules each."""

from __future__ import annotations

from homing.physics.models import Model
from homing.physics.robots import parts
from homing.physics.spring_settings import SpringSettings

# Side of a leg along x and y, names of its geoms, and limits of its ankle.
LEGS = (
    (1, 1, "left_leg", "left_ankle", "left_foot", (30, 70)),
    (-1, 1, "right_leg", "right_ankle", "right_foot", (-70, -30)),
    (-1, -1, "back_leg", "third_ankle", "third_foot", (-70, -30)),
    (1, -1, "rightback_leg", "fourth_ankle", "fourth_foot", (30, 70)),
)
MOTORS = ("hip_4", "ankle_4", "hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3")
RADIUS = 0.08  # of a leg
REST = (0.0, 0.0, 0.55, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)


def ant() -> Model:
    """The ant; only its feet collide with the floor."""
    spec = parts.new(
        "ant",
        degrees=True,
        joint={"armature": 1.0, "damping": 1.0},
        geom={
            "contype": 0,
            "conaffinity": 0,
            "density": 5.0,
            "friction": (1.0, 0.5, 0.5),
            "rgba": (0.4, 0.33, 0.26, 1.0),
        },
        timestep=0.01,
        iterations=4,
    )
    parts.floor(spec, (40, 40, 40))
    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, 0.75])
    parts.track(torso, (0, -3, 0.3))
    parts.sphere(torso, "torso_geom", 0.25)
    parts.free(torso, margin=0.01)
    for number, leg in enumerate(LEGS, 1):
        _add_leg(torso, number, *leg)
    for joint in MOTORS:
        parts.motor(spec, joint, gear=150, limit=1.0)
    model = Model(spec)
    model.set_rest(REST)
    model.set_spring(
        SpringSettings(
            joint_stiffness=4000, joint_vel_damping=20, joint_ang_damping=10, mass_scale=1, inertia_scale=1
        )
    )
    model.set_number("solver_maxls", 15)  # of the generalized_brax pipeline
    return model


def _add_leg(
    torso: parts.Body, number: int, x: int, y: int, leg: str, ankle: str, foot: str, limits: tuple
) -> None:
    """A fixed part at the torso, a leg that turns at the hip, and a shin that bends at the ankle."""
    hip, end = (0.2 * x, 0.2 * y, 0.0), (0.4 * x, 0.4 * y, 0.0)
    parts.capsule(torso, f"aux_{number}_geom", RADIUS, (0, 0, 0), hip)
    upper = torso.add_body(name=f"aux_{number}", pos=list(hip))
    parts.hinge(upper, f"hip_{number}", (0, 0, 1), (-30, 30))
    parts.capsule(upper, f"{leg}_geom", RADIUS, (0, 0, 0), hip)
    lower = upper.add_body(pos=list(hip))
    parts.hinge(lower, f"ankle_{number}", (-x * y, 1, 0), limits)
    parts.capsule(lower, f"{ankle}_geom", RADIUS, (0, 0, 0), end)
    parts.sphere(lower, f"{foot}_geom", RADIUS, end, contype=1, mass=0.0)
