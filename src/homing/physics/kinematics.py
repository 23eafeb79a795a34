"""Kinematics: the tree of links, and the motion of links at joint coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from homing.physics.engine import Links
from homing.physics.mechanism import Dofs
from homing.physics.mechanism import Links as LinkArrays
from homing.physics.vectors import (
    Bodies,
    Number,
    Vec,
    barrier,
    compose,
    constant,
    constants,
    cross,
    dot,
    matrix,
    minus,
    mul,
    pick,
    plus,
    rotate,
    scale,
)

Array = jax.Array
DOFS = {"f": 6, "1": 1, "2": 2, "3": 3}
COORDINATES = {"f": 7, "1": 1, "2": 2, "3": 3}


class Tree:
    """The links of a mechanism and where their coordinates are.

    dof, coordinate: first index of each link's entries in qd and q
    hinges, slides:  axes of all degrees of freedom in the link's frame, [qd_size, 3], zero for the other kind
    """

    def __init__(self, links: LinkArrays, dofs: Dofs):
        self.links, self.types, self.parents = links, links.types, links.parents
        self.dof = np.cumsum([0] + [DOFS[t] for t in self.types])[:-1]
        self.coordinate = np.cumsum([0] + [COORDINATES[t] for t in self.types])[:-1]
        self.free = np.array([t == "f" for t in self.types])
        self.hinges, self.slides = dofs.hinges, dofs.slides
        self.centre = constants(links.centre)


def in_subtree(parents: np.ndarray) -> np.ndarray:
    """[L, L] bool: whether a link (second) is in the subtree of another (first), its own included.

    The parent of a root is negative or, as that of MuJoCo's world, the root itself.
    """
    below = np.eye(len(parents), dtype=bool)
    for link in reversed(range(len(parents))):
        if parents[link] >= 0:
            below[parents[link]] |= below[link]
    return below


def link_frames(tree: Tree, bodies: Bodies) -> Links:
    """World frames and velocities of the links' origins, [..., L, ·]."""
    pos, rot, vel, ang = bodies
    arm = rotate(matrix(rot), tree.centre)
    parts = (minus(pos, arm), rot, minus(vel, cross(ang, arm)), ang)
    return Links(*(jnp.stack(part, axis=-1) for part in parts))


def turn(tree: Tree, dof: np.ndarray, angle: Number) -> Vec:
    """Quaternions of rotations by an angle [..., G] about the axes of the given hinges; the identity for slides."""
    axes = tree.hinges[dof]
    if not np.any(axes):
        return (1.0, 0.0, 0.0, 0.0)
    half = mul(constant(0.5 * np.any(axes, axis=-1)), angle)
    return (jnp.cos(half), *scale(jnp.sin(half), constants(axes)))


def start(tree: Tree, q: Array, qd: Array | None) -> Bodies:
    """Motion of all links at coordinates q [N, q_size] and velocities qd [N, qd_size] (forward kinematics).

    From the root outwards; links of equal depth and joint type are processed together. None for qd is no motion.
    """
    links = tree.links
    placed: dict[int, Bodies] = {}
    for group in _generations(tree):
        here = _moved(tree, group, q, qd)
        base, hinge = constants(links.rot[group]), constants(links.joint[group])
        # Rotation about the joint moves the origin.
        swung = plus(here.pos, minus(hinge, rotate(matrix(here.rot), hinge)))
        pos = plus(constants(links.pos[group]), rotate(matrix(base), swung))
        here = here._replace(pos=pos, rot=compose(base, here.rot))
        parents = tree.parents[group]
        on_world = parents[0] < 0
        here = _on_world(here) if on_world else _onto(_side_by_side([placed[p] for p in parents]), here)
        here = _computed(here)
        placed |= {link: _column(here, k) for k, link in enumerate(group)}
    full = lambda a: jnp.broadcast_to(jnp.asarray(a, q.dtype), q.shape[:-1])
    every = [jax.tree.map(full, placed[i]) for i in range(len(tree.types))]
    return _centred(jax.tree.map(lambda *columns: jnp.stack(columns, axis=-1), *every), tree.centre)


def _computed(bodies: Bodies) -> Bodies:
    """Bodies behind an optimisation barrier; constants stay constants."""
    leaves, structure = jax.tree.flatten(bodies)
    settled = iter(barrier([a for a in leaves if not isinstance(a, float)]))
    return jax.tree.unflatten(structure, [a if isinstance(a, float) else next(settled) for a in leaves])


def _generations(tree: Tree) -> list[np.ndarray]:
    """Links grouped by depth and joint type, parents first."""
    depth: list[int] = []
    for parent in tree.parents:
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
    kinds = sorted(set(zip(depth, tree.types, strict=True)))
    alike = lambda kind: [i for i, own in enumerate(zip(depth, tree.types, strict=True)) if own == kind]
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


def _moved(tree: Tree, group: np.ndarray, q: Array, qd: Array | None) -> Bodies:
    """Motion of links relative to the zero pose of their joints, components [N, G]."""
    at, dof, kind = tree.coordinate[group], tree.dof[group], tree.types[group[0]]
    cut = lambda x, first, size: tuple(0.0 if x is None else pick(x, first + i) for i in range(size))
    if kind == "f":
        return Bodies(cut(q, at, 3), cut(q, at + 3, 4), cut(qd, dof, 3), cut(qd, dof + 3, 3))
    pos, vel, ang = (0.0,) * 3, (0.0,) * 3, (0.0,) * 3
    rot: Vec = (1.0, 0.0, 0.0, 0.0)
    for k in range(DOFS[kind]):
        axis, slide = (constants(v[dof + k]) for v in (tree.hinges, tree.slides))
        (place,), (speed,) = cut(q, at + k, 1), cut(qd, dof + k, 1)
        pos = plus(pos, rotate(matrix(rot), scale(place, slide)))
        rot = compose(rot, turn(tree, dof + k, place))
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
