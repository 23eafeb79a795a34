"""From joint coordinates to the motion of links, and back."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from homing.physics.spring.joints import DOFS, Joints, Pose
from homing.physics.spring.vectors import (
    Bodies,
    Vec,
    compose,
    constants,
    cross,
    dot,
    matrix,
    minus,
    mul,
    pick,
    plus,
    scale,
    settle,
    turn,
    unturn,
)

Array = jax.Array


def start(joints: Joints, q: Array, qd: Array) -> Bodies:
    """The motion of all links at coordinates q [N, q_size] and velocities qd [N, qd_size].

    From the root outwards; links as far from it, on joints of one kind, are placed together.
    """
    links = joints.links
    placed: dict[int, Bodies] = {}
    for group in _generations(joints):
        here = _moved(joints, group, q, qd)
        base, hinge = constants(links.rot[group]), constants(links.joint[group])
        # Turning about the joint swings the origin.
        swung = plus(here.pos, minus(hinge, turn(matrix(here.rot), hinge)))
        pos = plus(constants(links.pos[group]), turn(matrix(base), swung))
        here = here._replace(pos=pos, rot=compose(base, here.rot))
        parents = joints.parents[group]
        on_world = parents[0] < 0
        here = settle(
            _on_world(here) if on_world else _onto(_side_by_side([placed[p] for p in parents]), here)
        )
        placed |= {link: _column(here, k) for k, link in enumerate(group)}
    full = lambda a: jnp.broadcast_to(jnp.asarray(a, q.dtype), q.shape[:-1])
    every = [jax.tree.map(full, placed[i]) for i in range(len(joints.types))]
    return _centred(_side_by_side(every), joints.centre)


def _generations(joints: Joints) -> list[np.ndarray]:
    """Links, parents first, in groups of as many joints to the root, and alike."""
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
    """Links against where their joints rest, components [N, G]."""
    at, dof, kind = joints.coordinate[group], joints.dof[group], joints.types[group[0]]
    cut = lambda x, first, size: tuple(pick(x, first + i) for i in range(size))
    if kind == "f":
        return Bodies(cut(q, at, 3), cut(q, at + 3, 4), cut(qd, dof, 3), cut(qd, dof + 3, 3))
    pos, vel, ang = (0.0,) * 3, (0.0,) * 3, (0.0,) * 3
    rot: Vec = (1.0, 0.0, 0.0, 0.0)
    for k in range(DOFS[kind]):
        axis, slide = (constants(v[dof + k]) for v in (joints.turning, joints.sliding))
        place, speed = pick(q, at + k), pick(qd, dof + k)
        pos = plus(pos, turn(matrix(rot), scale(place, slide)))
        if np.any(joints.turning[dof + k]):
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
