"""Parts that robots are built of: geoms, joints, motors and a floor, on top of `mujoco.MjSpec`.

What a part does not set, it takes from the model's defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

Spec, Body = mujoco.MjSpec, mujoco.MjsBody
Triple = Sequence[float]
LIMITED, UNLIMITED = mujoco.mjtLimited.mjLIMITED_TRUE, mujoco.mjtLimited.mjLIMITED_FALSE


def new(name: str, degrees: bool, joint: dict[str, Any], geom: dict[str, Any], **option: Any) -> Spec:
    """An empty model with defaults for joints and geoms; angles are in degrees or radians."""
    spec = Spec()
    spec.modelname = name
    spec.compiler.degree = degrees
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    spec.default.joint.limited = LIMITED
    _set(spec.default.joint, joint)
    _set(spec.default.geom, geom)
    _set(spec.option, option)
    return spec


def _set(part: Any, values: dict[str, Any]) -> None:
    """Set fields; of a vector only the leading entries that are given."""
    for name, value in values.items():
        old = getattr(part, name)
        if np.ndim(old):
            given = np.atleast_1d(value)
            value = [*given, *np.asarray(old)[len(given) :]]
        setattr(part, name, value)


def floor(spec: Spec, size: Triple, name: str = "floor", **more: Any) -> None:
    """The ground plane; robots collide with it by default."""
    geom = spec.worldbody.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_PLANE, size=list(size))
    _set(geom, {"conaffinity": 1, "rgba": (0.5, 0.5, 0.5, 1.0)} | more)


def sphere(body: Body, name: str, radius: float, pos: Triple = (0.0, 0.0, 0.0), **more: Any) -> None:
    """A ball of the given radius."""
    geom = body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[radius, 0, 0], pos=list(pos))
    _set(geom, more)


def capsule(body: Body, name: str, radius: float, start: Triple, end: Triple, **more: Any) -> None:
    """A capsule between two points."""
    geom = body.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_CAPSULE, size=[radius, 0, 0], fromto=[*start, *end]
    )
    _set(geom, more)


def free(body: Body, name: str = "root", **more: Any) -> None:
    """A free joint, without the damping and armature of the defaults."""
    _set(body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_FREE, limited=UNLIMITED), _PASSIVE | more)


def slide(body: Body, name: str, axis: Triple) -> None:
    """A slide joint without limits, damping, armature and stiffness."""
    joint = body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=list(axis), limited=UNLIMITED)
    _set(joint, _PASSIVE)


def pivot(body: Body, name: str, axis: Triple) -> None:
    """A hinge without limits, damping, armature and stiffness."""
    joint = body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=list(axis), limited=UNLIMITED)
    _set(joint, _PASSIVE)


def hinge(body: Body, name: str, axis: Triple, limits: tuple[float, float] | None, **more: Any) -> None:
    """A hinge with limits, or without for None."""
    joint = body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=list(axis))
    joint.limited = UNLIMITED if limits is None else LIMITED
    _set(joint, more if limits is None else {"range": limits} | more)


_PASSIVE = {"damping": 0.0, "armature": 0.0, "stiffness": 0.0}


def motor(spec: Spec, joint: str, gear: float, limit: float, name: str = "") -> None:
    """A motor on a joint, with control in ±limit."""
    spec.add_actuator(
        name=name,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gear=[gear, 0, 0, 0, 0, 0],
        ctrllimited=LIMITED,
        ctrlrange=[-limit, limit],
    )


def track(body: Body, pos: Triple) -> None:
    """A camera that follows the robot, seen along +y."""
    camera = body.add_camera(name="track", mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM, pos=list(pos))
    camera.alt.type = mujoco.mjtOrientation.mjORIENTATION_XYAXES
    camera.alt.xyaxes = [1, 0, 0, 0, 0, 1]
