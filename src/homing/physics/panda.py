"""The Franka Emika Panda, built from its published numbers with `mujoco.MjSpec`: no meshes, no files.

Masses and inertias are those that Franka publishes and that MuJoCo Menagerie's Panda uses (Apache-2.0).
Shapes that collide are primitives: a capsule for the hand, a box for each finger. Links 1 to 7 collide with
nothing. Contacts come from explicit pairs alone (`Model.add_pair`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco

from homing.physics.models import Model, like_default
from homing.physics.numerics import REST_POSE

Gains = Literal["equal", "original"]
Triple = tuple[float, float, float]
Quat = tuple[float, float, float, float]

JOINTS = tuple(f"joint{k}" for k in range(1, 8))
FINGERS = ("left_finger", "right_finger")
HAND = "hand"
ARMATURE, DAMPING = 0.1, 5.0
STIFFNESS = (4500.0, 4500.0, 3500.0, 3500.0, 2000.0, 2000.0, 2000.0)
ORIGINAL_GAINS = (4500.0, 4500.0, 2000.0, 2000.0, 1000.0, 1000.0, 1000.0)
TORQUES = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
STRETCH = 0.05  # largest distance of a finger from the middle, metres
FINGER_STIFFNESS, FINGER_FORCE, FINGER_CONTROL = 500.0, 500.0, 255.0
FINGER_GAIN = 0.09804  # newtons for a unit of control: 255 opens the finger by 0.05 m
CAPSULE_RADIUS, CAPSULE_HALF = 0.04, 0.06  # of the hand
CAPSULE_AT: Triple = (0.0, 0.0, 0.035)
PAD_HALF: Triple = (0.015, 0.005, 0.04)  # of a finger's box
PAD_AT: Triple = (0.0, 0.0055, 0.035)
FINGERS_AT: Triple = (0.0, 0.0, 0.0584)
TIP_AT: Triple = (0.0, 0.005, 0.07)
"""The point of a finger that grips."""
HAND_AT: Triple = (0.0, 0.0, 0.107)
HAND_TURN: Quat = (0.9238795, 0.0, 0.0, -0.3826834)
ABOUT_X, BACK_ABOUT_X, NONE = (1.0, 1.0, 0.0, 0.0), (1.0, -1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Link:
    """A link of the arm: its frame in its parent's, its mass, centre, inertia (xx yy zz xy xz yz) and joint range."""

    pos: Triple
    quat: Quat
    mass: float
    centre: Triple
    inertia: tuple[float, float, float, float, float, float]
    range: tuple[float, float]


LINKS = (
    Link(
        (0.0, 0.0, 0.333),
        NONE,
        4.970684,
        (0.003875, 0.002081, -0.04762),
        (0.70337, 0.70661, 0.0091170, -0.000139, 0.0067720, 0.019169),
        (-2.8973, 2.8973),
    ),
    Link(
        (0.0, 0.0, 0.0),
        BACK_ABOUT_X,
        0.646926,
        (-0.003141, -0.02872, 0.003495),
        (0.0079620, 0.028110, 0.025995, -0.003925, 0.010254, 0.000704),
        (-1.7628, 1.7628),
    ),
    Link(
        (0.0, -0.316, 0.0),
        ABOUT_X,
        3.228604,
        (0.027518, 0.039252, -0.066502),
        (0.037242, 0.036155, 0.01083, -0.004761, -0.011396, -0.012805),
        (-2.8973, 2.8973),
    ),
    Link(
        (0.0825, 0.0, 0.0),
        ABOUT_X,
        3.587895,
        (-0.05317, 0.104419, 0.027454),
        (0.025853, 0.019552, 0.028323, 0.007796, -0.001332, 0.008641),
        (-3.0718, -0.0698),
    ),
    Link(
        (-0.0825, 0.384, 0.0),
        BACK_ABOUT_X,
        1.225946,
        (-0.011953, 0.041065, -0.038437),
        (0.035549, 0.029474, 0.008627, -0.002117, -0.004037, 0.000229),
        (-2.8973, 2.8973),
    ),
    Link(
        (0.0, 0.0, 0.0),
        ABOUT_X,
        1.666555,
        (0.060149, -0.014117, -0.010517),
        (0.001964, 0.004354, 0.005433, 0.000109, -0.001158, 0.000341),
        (-0.0175, 3.7525),
    ),
    Link(
        (0.088, 0.0, 0.0),
        ABOUT_X,
        0.735522,
        (0.010517, -0.004252, 0.061597),
        (0.012516, 0.010027, 0.004815, -0.000428, -0.001196, -0.000741),
        (-2.8973, 2.8973),
    ),
)


def arm(gains: Gains = "equal", gripper: bool = True, start: Sequence[float] = ()) -> Model:
    """The arm on a table, with or without moving fingers; `start` are the joints' angles at rest.

    gains: "equal" lets position servos reach their targets; "original" has the smaller gains of JaxGCRL's
           models, with which joints 3 to 7 settle at about half of their targets
    """
    spec = _spec(start)
    parent = spec.worldbody
    for k, link in enumerate(LINKS):
        parent = parent.add_body(
            name=f"link{k + 1}",
            pos=list(link.pos),
            quat=list(link.quat),
            mass=link.mass,
            ipos=list(link.centre),
            fullinertia=list(link.inertia),
            explicitinertial=True,
        )
        _joint(spec, parent, JOINTS[k], mujoco.mjtJoint.mjJNT_HINGE, (0, 0, 1), link.range)
    hand = parent.add_body(name=HAND, pos=list(HAND_AT), quat=list(HAND_TURN))
    _palm(hand)
    commanded = STIFFNESS if gains == "equal" else ORIGINAL_GAINS
    for k, link in enumerate(LINKS):
        _servo(spec, JOINTS[k], commanded[k], STIFFNESS[k], 0.1 * STIFFNESS[k], TORQUES[k], link.range)
    if gripper:
        _gripper(spec, hand)
    return Model(spec)


def hand(ranges: Sequence[tuple[float, float]], start: Sequence[float]) -> Model:
    """A hand without an arm, on servos along x, y and z, with its fingers down; weightless, so that it stays put."""
    spec = _spec(start)
    # A half turn about x points the fingers down; the joints' axes are turned back to the world's.
    body = spec.worldbody.add_body(name=HAND, quat=[0.0, 1.0, 0.0, 0.0], gravcomp=1.0)
    for axis, direction, limit in zip("xyz", ((1, 0, 0), (0, -1, 0), (0, 0, -1)), ranges, strict=True):
        _joint(spec, body, f"hand_{axis}", mujoco.mjtJoint.mjJNT_SLIDE, direction, limit)
    _palm(body)
    for axis, limit in zip("xyz", ranges, strict=True):
        _servo(spec, f"hand_{axis}", 1000.0, 1000.0, 100.0, None, limit)
    _gripper(spec, body, gravcomp=1.0)
    return Model(spec)


def _spec(start: Sequence[float]) -> mujoco.MjSpec:
    """An empty table, and the pose at rest."""
    spec = mujoco.MjSpec()
    spec.compiler.autolimits, spec.compiler.degree = False, False
    spec.worldbody.add_geom(
        name="table",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[1.0, 1.0, 0.1],
        pos=[0, 0.2, 0],
        contype=0,
        conaffinity=0,
    )
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    if start:
        spec.add_numeric(name=REST_POSE, data=list(start), size=len(start))
    return spec


def _joint(
    spec: mujoco.MjSpec,
    body,
    name: str,
    kind: mujoco.mjtJoint,
    axis: Sequence[float],
    limit: tuple[float, float],
) -> None:
    body.add_joint(
        name=name,
        type=kind,
        axis=list(axis),
        limited=mujoco.mjtLimited.mjLIMITED_TRUE,
        range=list(limit),
        armature=ARMATURE,
        damping=like_default(spec, "damping", DAMPING),
    )


def _palm(body) -> None:
    """The capsule of the hand, which gives it its mass."""
    body.add_geom(
        name="palm",
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        size=[CAPSULE_RADIUS, CAPSULE_HALF, 0],
        pos=list(CAPSULE_AT),
        quat=list(ABOUT_X),
        contype=0,
        conaffinity=0,
        density=1000.0,
    )


def _gripper(spec: mujoco.MjSpec, hand, gravcomp: float = 0.0) -> None:
    """Two fingers at equal distances from the middle; `gravcomp` is the fraction of their weight that is borne."""
    for name, quat in zip(FINGERS, (NONE, (0.0, 0.0, 0.0, 1.0)), strict=True):
        finger = hand.add_body(
            name=name,
            pos=list(FINGERS_AT),
            quat=list(quat),
            mass=0.015,
            ipos=[0, 0, 0],
            inertia=[2.375e-6, 2.375e-6, 7.5e-7],
            explicitinertial=True,
            gravcomp=gravcomp,
        )
        _joint(spec, finger, f"{name}_joint", mujoco.mjtJoint.mjJNT_SLIDE, (0, 1, 0), (0.0, STRETCH))
        finger.add_geom(
            name=f"{name}_pad",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=list(PAD_HALF),
            pos=list(PAD_AT),
            contype=0,
            conaffinity=0,
        )
        _servo(
            spec,
            f"{name}_joint",
            FINGER_GAIN,
            FINGER_STIFFNESS,
            0.1 * FINGER_STIFFNESS,
            FINGER_FORCE,
            (0.0, FINGER_CONTROL),
        )
    spec.add_equality(
        type=mujoco.mjtEq.mjEQ_JOINT,
        name1=f"{FINGERS[0]}_joint",
        name2=f"{FINGERS[1]}_joint",
        objtype=mujoco.mjtObj.mjOBJ_JOINT,
        data=_padded([0.0, 1.0], spec.default.equality.data),
        solref=[0.005, 1],
        solimp=_padded([0.95, 0.99, 0.001], spec.default.equality.solimp),
    )


def _servo(
    spec: mujoco.MjSpec,
    joint: str,
    gain: float,
    stiffness: float,
    damping: float,
    force: float | None,
    control: tuple[float, float],
) -> None:
    """A position servo with the force gain·control − stiffness·position − damping·velocity."""
    limited, free = mujoco.mjtLimited.mjLIMITED_TRUE, mujoco.mjtLimited.mjLIMITED_FALSE
    spec.add_actuator(
        name=joint,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        gainprm=[gain, *[0.0] * 9],
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        biasprm=[0.0, -stiffness, -damping, *[0.0] * 7],
        ctrllimited=limited,
        ctrlrange=list(control),
        forcelimited=free if force is None else limited,
        forcerange=[0.0, 0.0] if force is None else [-force, force],
    )


def _padded(values: list[float], default: Sequence[float]) -> list[float]:
    """`values`, and for the rest MuJoCo's defaults; the number of coefficients depends on its version."""
    return [*values, *list(default)[len(values) :]]
