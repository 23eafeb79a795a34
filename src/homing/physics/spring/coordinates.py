"""Joint coordinates of the motion of links."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from homing.physics.kinematics import DOFS
from homing.physics.spring.joints import Joints, Pose
from homing.physics.vectors import (
    Bodies,
    Vec,
    cross,
    dot,
    matrix,
    minus,
    mul,
    rotate,
    rotate_back,
)

Array = jax.Array


def coordinates(joints: Joints, bodies: Bodies) -> tuple[Array, Array]:
    """Joint coordinates [N, q_size] and velocities [N, qd_size] of the links' motion."""
    at = joints.pose(bodies)
    free = _free(joints, bodies)
    rotations = zip(at.angles(joints.parity), _speeds(joints, at), strict=True)
    slides = [(dot(at.offset, axis), dot(at.vel, axis)) for axis in at.slides]
    q, qd = [], []
    axes = list(zip(joints.axes, rotations, slides, strict=True))
    for i, kind in enumerate(joints.types):
        own = [rotation if _at(axis.rotates, i) else slide for axis, rotation, slide in axes][: DOFS[kind]]
        there, velocity = free if kind == "f" else zip(*own, strict=True)
        q += [a[..., i] for a in there]
        qd += [a[..., i] for a in velocity]
    return jnp.stack(q, axis=-1), jnp.stack(qd, axis=-1)


def _at(x, i: int) -> float:
    return x if isinstance(x, float) else float(x[i])


def _speeds(joints: Joints, at: Pose) -> Vec:
    """Joint angular velocities about the child's axes."""
    ang = rotate_back(at.parent_axes, at.ang)
    child = [rotate_back(at.parent_axes, axis) for axis in at.child_axes]
    # For a link on the world, brax first rotates the angular velocity by the inverse of the joint.
    on_world = np.broadcast_to(joints.moving, len(joints.types)) == 0.0
    if np.any(on_world):
        ang = tuple(jnp.where(on_world, dot(axis, ang), a) for axis, a in zip(child, ang, strict=True))
    first, second, third = (dot(axis, ang) for axis in child)
    return first, second, mul(joints.parity, third)


def _free(joints: Joints, bodies: Bodies) -> tuple[Vec, Vec]:
    """Coordinates of free joints: position and quaternion; world velocity and angular velocity in the link frame."""
    own = matrix(bodies.rot)
    arm = rotate(own, joints.centre)
    vel = minus(bodies.vel, cross(bodies.ang, arm))
    return (*minus(bodies.pos, arm), *bodies.rot), (*vel, *rotate_back(own, bodies.ang))
