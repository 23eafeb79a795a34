"""Conversion between joint coordinates and the motion of links."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from homing.physics.spring.joints import DOFS, Joints, Pose
from homing.physics.vectors import (
    Bodies,
    Vec,
    barrier,
    compose,
    constants,
    cross,
    dot,
    matrix,
    minus,
    mul,
    pick,
    plus,
    rotate,
    rotate_back,
    scale,
)

Array = jax.Array


def start(joints: Joints, q: Array, qd: Array) -> Bodies:
    """Motion of all links at coordinates q [N, q_size] and velocities qd [N, qd_size] (forward kinematics).

    From the root outwards; links of equal depth and joint type are processed together.
    """
    links = joints.links
    placed: dict[int, Bodies] = {}
    for group in _generations(joints):
        here = _moved(joints, group, q, qd)
        base, hinge = constants(links.rot[group]), constants(links.joint[group])
        # Rotation about the joint moves the origin.
        swung = plus(here.pos, minus(hinge, rotate(matrix(here.rot), hinge)))
        pos = plus(constants(links.pos[group]), rotate(matrix(base), swung))
        here = here._replace(pos=pos, rot=compose(base, here.rot))
        parents = joints.parents[group]
        on_world = parents[0] < 0
        here = barrier(
            _on_world(here) if on_world else _onto(_side_by_side([placed[p] for p in parents]), here)
        )
        placed |= {link: _column(here, k) for k, link in enumerate(group)}
    full = lambda a: jnp.broadcast_to(jnp.asarray(a, q.dtype), q.shape[:-1])
    every = [jax.tree.map(full, placed[i]) for i in range(len(joints.types))]
    return _centred(_side_by_side(every), joints.centre)


def _generations(joints: Joints) -> list[np.ndarray]:
    """Links grouped by depth and joint type, parents first."""
    depth: list[int] = []
    for parent in joints.parents:
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
    kinds = sorted(set(zip(depth, joints.types, strict=True)))
    alike = lambda kind: [i for i, own in enumerate(zip(depth, joints.types, strict=True)) if own == kind]
    return [np.array(alike(kind)) for kind in kinds]


def _side_by_side(bodies: Sequence[Bodies]) -> Bodies:
    """Bodies with components [N] as one with components [N, G]."""
    if all(body is bodies[0] for body in bodies):
        return jax.tree.map(lambda a: a if np.ndim(a) == 0 else a[..., None], bodies[0])
    return jax.tree.map(lambda *columns: jnp.stack(jnp.broadcast_arrays(*columns), axis=-1), *bodies)


def _column(bodies: Bodies, k: int) -> Bodies:
    """The k-th body, with components [N]."""
    one = lambda a: a if np.ndim(a) == 0 else a[..., k if a.shape[-1] > 1 else 0]
    return jax.tree.map(one, bodies)


def _moved(joints: Joints, group: np.ndarray, q: Array, qd: Array) -> Bodies:
    """Motion of links relative to the zero pose of their joints, components [N, G]."""
    at, dof, kind = joints.coordinate[group], joints.dof[group], joints.types[group[0]]
    cut = lambda x, first, size: tuple(pick(x, first + i) for i in range(size))
    if kind == "f":
        return Bodies(cut(q, at, 3), cut(q, at + 3, 4), cut(qd, dof, 3), cut(qd, dof + 3, 3))
    pos, vel, ang = (0.0,) * 3, (0.0,) * 3, (0.0,) * 3
    rot: Vec = (1.0, 0.0, 0.0, 0.0)
    for k in range(DOFS[kind]):
        axis, slide = (constants(v[dof + k]) for v in (joints.hinges, joints.slides))
        place, speed = pick(q, at + k), pick(qd, dof + k)
        pos = plus(pos, rotate(matrix(rot), scale(place, slide)))
        if np.any(joints.hinges[dof + k]):
            rot = compose(rot, (jnp.cos(0.5 * place), *scale(jnp.sin(0.5 * place), axis)))
        vel, ang = plus(vel, scale(speed, slide)), plus(ang, scale(speed, axis))
    return Bodies(pos, rot, vel, ang)


def _onto(parent: Bodies, here: Bodies) -> Bodies:
    frame = matrix(parent.rot)
    arm, rot = rotate(frame, here.pos), compose(parent.rot, here.rot)
    vel = plus(parent.vel, cross(parent.ang, arm), rotate(frame, here.vel))
    return Bodies(plus(parent.pos, arm), rot, vel, plus(parent.ang, rotate(matrix(rot), here.ang)))


def _on_world(here: Bodies) -> Bodies:
    return here._replace(ang=rotate(matrix(here.rot), here.ang))


def _centred(body: Bodies, centre: Vec) -> Bodies:
    """Motion at the centre of mass instead of the link's origin, with a normalised quaternion."""
    rot = scale(1.0 / jnp.sqrt(dot(body.rot, body.rot)), body.rot)
    arm = rotate(matrix(rot), centre)
    return Bodies(plus(body.pos, arm), rot, plus(body.vel, cross(body.ang, arm)), body.ang)


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
