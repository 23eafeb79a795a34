"""The humanoid's model: torso, waist, pelvis, two legs and two arms."""

from __future__ import annotations

from homing.physics.models import Model
from homing.physics.robots import parts
from homing.physics.robots.parts import Body, capsule, hinge, sphere
from homing.physics.spring_settings import SpringSettings

TILT = (1.0, 0.0, -0.002, 0.0)  # of waist and pelvis
LEG_GEARS = {"hip_x": 100, "hip_z": 100, "hip_y": 300, "knee": 200}
ARM_GEARS = {"shoulder1": 25, "shoulder2": 25, "elbow": 25}


def humanoid() -> Model:
    """The humanoid; only its feet collide with the floor."""
    spec = parts.new(
        "humanoid",
        degrees=True,
        joint={"armature": 1.0, "damping": 1.0},
        geom={"contype": 0, "conaffinity": 0, "rgba": (0.4, 0.33, 0.26, 1.0)},
        timestep=0.003,
        iterations=8,
    )
    parts.floor(spec, (20, 20, 0.125), friction=(1.0, 0.1, 0.1))
    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, 1.4])
    parts.track(torso, (0, -4, 0))
    parts.free(torso)
    capsule(torso, "torso1", 0.07, (0, -0.07, 0), (0, 0.07, 0))
    sphere(torso, "head", 0.09, (0, 0, 0.19))
    capsule(torso, "uwaist", 0.06, (-0.01, -0.06, -0.12), (-0.01, 0.06, -0.12))
    pelvis = _add_waist(torso)
    for side, y in (("right", -1), ("left", 1)):
        _add_leg(pelvis, side, y)
    for side, y in (("right", -1), ("left", 1)):
        _add_arm(torso, side, y)
    gears = {"abdomen_y": 100, "abdomen_z": 100, "abdomen_x": 100}
    for own in (LEG_GEARS, ARM_GEARS):
        gears |= {f"{side}_{joint}": gear for side in ("right", "left") for joint, gear in own.items()}
    for joint, gear in gears.items():
        parts.motor(spec, joint, gear, 0.4, name=joint)
    return _with_settings(Model(spec))


def _add_waist(torso: Body) -> Body:
    """Waist and pelvis."""
    waist = torso.add_body(name="lwaist", pos=[-0.01, 0, -0.26], quat=list(TILT))
    capsule(waist, "lwaist", 0.06, (0, -0.06, 0), (0, 0.06, 0))
    abdomen = {"armature": 0.02, "damping": 5.0}
    hinge(waist, "abdomen_z", (0, 0, 1), (-45, 45), pos=(0, 0, 0.065), stiffness=20, **abdomen)
    hinge(waist, "abdomen_y", (0, 1, 0), (-75, 30), pos=(0, 0, 0.065), stiffness=10, **abdomen)
    pelvis = waist.add_body(name="pelvis", pos=[0, 0, -0.165], quat=list(TILT))
    hinge(pelvis, "abdomen_x", (1, 0, 0), (-35, 35), pos=(0, 0, 0.1), stiffness=10, **abdomen)
    capsule(pelvis, "butt", 0.09, (-0.02, -0.07, 0), (-0.02, 0.07, 0))
    return pelvis


def _add_leg(pelvis: Body, side: str, y: int) -> None:
    """Thigh with three hinges, and shin with knee and foot; y is −1 on the right."""
    thigh = pelvis.add_body(name=f"{side}_thigh", pos=[0, 0.1 * y, -0.04])
    hip = {"armature": 0.01, "damping": 5.0}
    hinge(thigh, f"{side}_hip_x", (-y, 0, 0), (-25, 5), stiffness=10, **hip)
    hinge(thigh, f"{side}_hip_z", (0, 0, -y), (-60, 35), stiffness=10, **hip)
    # The two sides differ in this armature and in the knee's stiffness.
    armature, stiffness = (0.008, 0.0) if side == "right" else (0.01, 1.0)
    hinge(thigh, f"{side}_hip_y", (0, 1, 0), (-110, 20), stiffness=20, armature=armature, damping=5.0)
    capsule(thigh, f"{side}_thigh1", 0.06, (0, 0, 0), (0, -0.01 * y, -0.34))
    shin = thigh.add_body(name=f"{side}_shin", pos=[0, -0.01 * y, -0.403])
    knee = {"armature": 0.006, "stiffness": stiffness}
    hinge(shin, f"{side}_knee", (0, -1, 0), (-160, -2), pos=(0, 0, 0.02), **knee)
    capsule(shin, f"{side}_shin1", 0.049, (0, 0, 0), (0, 0, -0.3))
    sphere(shin, f"{side}_foot", 0.075, (0, 0, -0.35), contype=1)


def _add_arm(torso: Body, side: str, y: int) -> None:
    """Upper arm with two hinges, and forearm with elbow and hand."""
    limits = (-85, 60) if side == "right" else (-60, 85)
    upper = torso.add_body(name=f"{side}_upper_arm", pos=[0, 0.17 * y, 0.06])
    hinge(upper, f"{side}_shoulder1", (2, -y, 1), limits, armature=0.0068, stiffness=1)
    hinge(upper, f"{side}_shoulder2", (0, y, 1), limits, armature=0.0051, stiffness=1)
    capsule(upper, f"{side}_uarm1", 0.04, (0, 0, 0), (0.16, 0.16 * y, -0.16))
    lower = upper.add_body(name=f"{side}_lower_arm", pos=[0.18, 0.18 * y, -0.18])
    hinge(lower, f"{side}_elbow", (0, -1, -y), (-90, 50), armature=0.0028)
    capsule(lower, f"{side}_larm", 0.031, (0.01, -0.01 * y, 0.01), (0.17, -0.17 * y, 0.17))
    sphere(lower, f"{side}_hand", 0.04, (0.18, -0.18 * y, 0.18))


def _with_settings(model: Model) -> Model:
    model.set_spring(
        SpringSettings(
            joint_stiffness=27_000,
            joint_limit_stiffness=2500,
            joint_vel_damping=80,
            joint_ang_damping=30,
            ang_damping=-0.05,
            inertia_scale=1,
        )
    )
    # Of the generalized_brax pipeline.
    model.set_number("matrix_inv_iterations", 20)
    model.set_number("solver_maxls", 15)
    return model
