"""From joint coordinates to the motion of links, and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from homing.physics.joints import DOFS, Joints, Pose
from homing.physics.vectors import (
    Bodies,
    Vec,
    compose,
    cross,
    dot,
    floats,
    matrix,
    minus,
    mul,
    plus,
    scale,
    settle,
    turn,
    unturn,
)

Array = jax.Array


def start(joints: Joints, q: Array, qd: Array) -> Bodies:
    """The motion of all links at coordinates q [N, q_size] and velocities qd [N, qd_size]."""
    links = joints.links
    placed: list[Bodies] = []
    for i, parent in enumerate(joints.parents):
        here = _moved(joints, i, q, qd)
        base, hinge = floats(links.rot[i]), floats(links.joint[i])
        # Turning about the joint swings the origin.
        swung = plus(here.pos, minus(hinge, turn(matrix(here.rot), hinge)))
        pos = plus(floats(links.pos[i]), turn(matrix(base), swung))
        here = here._replace(pos=pos, rot=compose(base, here.rot))
        placed.append(settle(_onto(placed[parent], here) if parent >= 0 else _on_world(here)))
    centred = [_centred(body, floats(c)) for body, c in zip(placed, links.centre, strict=True)]
    full = lambda a: jnp.broadcast_to(jnp.asarray(a, q.dtype), q.shape[:-1])
    return jax.tree.map(lambda *columns: jnp.stack([full(a) for a in columns], axis=-1), *centred)


def _moved(joints: Joints, link: int, q: Array, qd: Array) -> Bodies:
    """A link against where its joint rests."""
    at, dof = joints.coordinate[link], joints.dof[link]
    cut = lambda x, first, size: tuple(x[..., first + i] for i in range(size))
    if joints.types[link] == "f":
        return Bodies(cut(q, at, 3), cut(q, at + 3, 4), cut(qd, dof, 3), cut(qd, dof + 3, 3))
    pos, vel, ang = (0.0,) * 3, (0.0,) * 3, (0.0,) * 3
    rot = (1.0, 0.0, 0.0, 0.0)
    for k in range(DOFS[joints.types[link]]):
        axis, slide = (floats(v[dof + k]) for v in (joints.turning, joints.sliding))
        place, speed = q[..., at + k], qd[..., dof + k]
        pos = plus(pos, turn(matrix(rot), scale(place, slide)))
        if any(axis):
            rot = compose(rot, (jnp.cos(0.5 * place), *scale(jnp.sin(0.5 * place), axis)))
        vel, ang = plus(vel, scale(speed, slide)), plus(ang, scale(speed, axis))
    return Bodies(pos, rot, vel, ang)


def _onto(parent: Bodies, here: Bodies) -> Bodies:
    frame = matrix(parent.rot)
    arm, rot = turn(frame, here.pos), compose(parent.rot, here.rot)
    vel = plus(parent.vel, cross(parent.ang, arm), turn(frame, here.vel))
    return Bodies(plus(parent.pos, arm), rot, vel, plus(parent.ang, turn(matrix(rot), here.ang)))


def _on_world(here: Bodies) -> Bodies:
    return here._replace(ang=turn(matrix(here.rot), here.ang))


def _centred(body: Bodies, centre: Vec) -> Bodies:
    """From a link's origin to its centre of mass, with a quaternion of unit length."""
    rot = scale(1.0 / jnp.sqrt(dot(body.rot, body.rot)), body.rot)
    arm = turn(matrix(rot), centre)
    return Bodies(plus(body.pos, arm), rot, plus(body.vel, cross(body.ang, arm)), body.ang)


def coordinates(joints: Joints, bodies: Bodies) -> tuple[Array, Array]:
    """Joint coordinates [N, q_size] and velocities [N, qd_size]."""
    at = joints.pose(bodies)
    free = _free(joints, bodies)
    turned = zip(at.angles(joints.parity), _speeds(joints, at), strict=True)
    slid = [(dot(at.offset, axis), dot(at.vel, axis)) for axis in at.slides]
    q, qd = [], []
    axes = list(zip(joints.axes, turned, slid, strict=True))
    for i, kind in enumerate(joints.types):
        own = [turn if _at(axis.turns, i) else slide for axis, turn, slide in axes][: DOFS[kind]]
        there, velocity = free if kind == "f" else zip(*own, strict=True)
        q += [a[..., i] for a in there]
        qd += [a[..., i] for a in velocity]
    return jnp.stack(q, axis=-1), jnp.stack(qd, axis=-1)


def _at(x, i: int) -> float:
    return x if isinstance(x, float) else float(x[i])


def _speeds(joints: Joints, at: Pose) -> Vec:
    """Angular velocities about the child's axes."""
    ang = unturn(at.parent_axes, at.ang)
    child = [unturn(at.parent_axes, axis) for axis in at.child_axes]
    # A link on the world has its spin turned back by the joint first.
    on_world = np.broadcast_to(joints.moving, len(joints.types)) == 0.0
    if np.any(on_world):
        ang = tuple(jnp.where(on_world, dot(axis, ang), a) for axis, a in zip(child, ang, strict=True))
    first, second, third = (dot(axis, ang) for axis in child)
    return first, second, mul(joints.parity, third)


def _free(joints: Joints, bodies: Bodies) -> tuple[Vec, Vec]:
    """Origin and turn; velocity in the world and spin in the link's own frame."""
    own = matrix(bodies.rot)
    arm = turn(own, joints.centre)
    vel = minus(bodies.vel, cross(bodies.ang, arm))
    return (*minus(bodies.pos, arm), *bodies.rot), (*vel, *unturn(own, bodies.ang))
