"""The half-cheetah's model: a planar torso with a hind leg and a fore leg."""

from __future__ import annotations

import math
from typing import NamedTuple

import mujoco

from homing.physics.models import Model
from homing.physics.robots import parts
from homing.physics.spring_settings import SpringSettings

RADIUS = 0.046
TOTAL_MASS = 14.0


class Bone(NamedTuple):
    """A link of a leg: its place on the link before it, its joint, its capsule (about the y axis) and its motor."""

    name: str
    pos: tuple[float, float]  # x and z
    limits: tuple[float, float]
    stiffness: float
    damping: float
    centre: tuple[float, float]
    angle: float
    length: float
    touches: bool
    gear: float


LEGS = (
    (
        Bone("bthigh", (-0.5, 0.0), (-0.52, 1.05), 240, 6.0, (0.1, -0.13), -3.8, 0.145, True, 120),
        Bone("bshin", (0.16, -0.25), (-0.785, 0.785), 180, 4.5, (-0.14, -0.07), -2.03, 0.15, False, 90),
        Bone("bfoot", (-0.28, -0.14), (-0.4, 0.785), 120, 3.0, (0.03, -0.097), -0.27, 0.094, True, 60),
    ),
    (
        Bone("fthigh", (0.5, 0.0), (-1.0, 0.7), 180, 4.5, (-0.07, -0.12), 0.52, 0.133, True, 120),
        Bone("fshin", (-0.14, -0.24), (-1.2, 0.87), 120, 3.0, (0.065, -0.09), -0.6, 0.106, False, 60),
        Bone("ffoot", (0.13, -0.18), (-0.5, 0.5), 60, 1.5, (0.045, -0.07), -0.6, 0.07, True, 30),
    ),
)


def half_cheetah() -> Model:
    """The half-cheetah, which slides along x and z and turns about y."""
    spec = parts.new(
        "half_cheetah",
        degrees=False,
        joint={
            "armature": 0.1,
            "damping": 0.01,
            "stiffness": 8.0,
            "solimp_limit": (0.0, 0.8, 0.03),
            "solref_limit": (0.02, 1.0),
        },
        geom={
            "contype": 0,
            "conaffinity": 0,
            "friction": (0.4, 0.1, 0.1),
            "solimp": (0.0, 0.8, 0.01),
            "solref": (0.02, 1.0),
            "rgba": (0.4, 0.33, 0.26, 1.0),
        },
        timestep=0.01,
        iterations=4,
    )
    parts.floor(spec, (40, 40, 40))
    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, 0.7])
    parts.track(torso, (0, -3, 0.3))
    parts.slide(torso, "rootx", (1, 0, 0))
    parts.slide(torso, "rootz", (0, 0, 1))
    parts.pivot(torso, "rooty", (0, 1, 0))
    parts.capsule(torso, "torso", RADIUS, (-0.5, 0, 0), (0.5, 0, 0))
    _add_capsule(torso, "head", (0.6, 0.1), 0.87, 0.15, True)
    for leg in LEGS:
        body = torso
        for bone in leg:
            body = _add_bone(body, bone)
    for bone in (bone for leg in LEGS for bone in leg):
        parts.motor(spec, bone.name, bone.gear, 1.0, name=bone.name)
    model = Model(spec)
    model.set_total_mass(TOTAL_MASS)
    model.set_spring(
        SpringSettings(
            joint_stiffness=20_000,
            joint_limit_stiffness=10_000,
            joint_vel_damping=10,
            joint_ang_damping=(10, 2, 2, 2, 10, 2, 1),
            ang_damping=-0.01,
            push_out=0.2,
            mass_scale=0.3,
            inertia_scale=0.8,
        )
    )
    model.set_number("solver_maxls", 50)  # of the generalized_brax pipeline
    return model


def _add_bone(body: parts.Body, bone: Bone) -> parts.Body:
    link = body.add_body(name=bone.name, pos=[bone.pos[0], 0, bone.pos[1]])
    parts.hinge(link, bone.name, (0, 1, 0), bone.limits, stiffness=bone.stiffness, damping=bone.damping)
    _add_capsule(link, bone.name, bone.centre, bone.angle, bone.length, bone.touches)
    return link


def _add_capsule(
    body: parts.Body, name: str, centre: tuple[float, float], angle: float, length: float, touches: bool
) -> None:
    """A capsule of a half-length, in the plane of motion."""
    body.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        pos=[centre[0], 0, centre[1]],
        quat=[math.cos(angle / 2), 0, math.sin(angle / 2), 0],
        size=[RADIUS, length, 0],
        contype=int(touches),
    )
