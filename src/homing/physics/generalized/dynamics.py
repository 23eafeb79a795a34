"""Equations of motion in joint coordinates: M a = f, by composite rigid bodies and recursive Newton-Euler.

Written for one environment. Sums along the tree have constant 0/1 weights. Spatial vectors are about the centre of
mass of their tree: motions are angular and linear velocities of that point, forces torque about it and a force.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from homing.physics.kinematics import DOFS, Tree, in_subtree, turn
from homing.physics.mechanism import Links
from homing.physics.vectors import (
    EYE,
    Bodies,
    Mat,
    Number,
    Vec,
    add,
    barrier,
    compose,
    constant,
    constants,
    cross,
    dot,
    floats,
    matrix,
    minus,
    mul,
    pick,
    pick_all,
    plus,
    rotate,
    scale,
)

Array = jax.Array


class Axes(NamedTuple):
    """Degrees of freedom in the world frame, components [D].

    hinge, slide: direction, zero for the other kind
    anchor:       a point on the axis of a hinge
    """

    hinge: Vec
    slide: Vec
    anchor: Vec


class Spatial(NamedTuple):
    """A spatial vector: a motion (angular and linear velocity) or a force (torque and force)."""

    ang: Vec
    lin: Vec


class Inertia(NamedTuple):
    """Mass, first moment of mass, and rows of the inertia matrix about the reference point."""

    mass: Number
    moment: Vec
    matrix: Mat

    def momentum(self, motion: Spatial) -> Spatial:
        """Angular and linear momentum under a motion."""
        turning = tuple(dot(row, motion.ang) for row in self.matrix)
        return Spatial(
            plus(turning, cross(self.moment, motion.lin)),
            plus(scale(self.mass, motion.lin), cross(motion.ang, self.moment)),
        )


def _inertia(mass: Number, moment: Vec, entries: Vec) -> Inertia:
    """An inertia from the six entries of its matrix that are on and above the diagonal."""
    xx, xy, xz, yy, yz, zz = entries
    return Inertia(mass, moment, ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz)))


class Dynamics:
    """Mass matrix and bias forces of a mechanism.

    affects:  [D, L] bool, whether a degree of freedom moves a link
    dof_link: link of each degree of freedom
    """

    def __init__(self, tree: Tree, armature: np.ndarray, gravity: np.ndarray):
        self.tree, self._armature = tree, armature
        links, count = tree.links, len(tree.types)
        self.dof_link = np.repeat(np.arange(count), [DOFS[t] for t in tree.types])
        below = in_subtree(tree.parents)
        self.affects = below[self.dof_link]
        self._before = _before(tree, below, self.dof_link)
        same_root = _roots(tree.parents)[:, None] == _roots(tree.parents)
        weights = same_root * links.mass
        self._of_root = weights / weights.sum(axis=1, keepdims=True)
        self._mass, self._composite_mass = constant(links.mass), constant(self.affects @ links.mass)
        self._principal = [constants(v) for v in _principal_axes(links)]
        self._spin = [constant(links.inertia[:, k]) for k in range(3)]
        self._against_gravity = floats(-gravity)
        # Entries (i, j) of the mass matrix where j moves the link of i, and j comes first.
        self._lower = np.tril(self.affects[:, self.dof_link].T)

    def equations(self, axes: Axes, bodies: Bodies, qd: Array) -> tuple[Array, Array]:
        """The mass matrix [D, D], and the forces [D] of gravity, Coriolis and centrifugal effects."""
        centre = barrier(_sums(self._of_root, bodies.pos))
        inertia = self._inertias(bodies, centre)
        motions = _about(axes, pick_all(centre, self.dof_link))
        motions = barrier(motions)
        return self._mass_matrix(motions, inertia), self._bias(motions, inertia, qd)

    def _inertias(self, bodies: Bodies, centre: Vec) -> Inertia:
        """Inertias of links [L] about the centre of mass of their tree."""
        arm, own = minus(bodies.pos, centre), matrix(bodies.rot)
        square = dot(arm, arm)
        axes = [rotate(own, axis) for axis in self._principal]
        entry = lambda i, j: add(
            *(mul(spin, e[i] * e[j]) for spin, e in zip(self._spin, axes, strict=True)),
            mul(self._mass, EYE[i][j] * square - arm[i] * arm[j]),
        )
        entries = tuple(entry(i, j) for i in range(3) for j in range(i, 3))
        return _inertia(self._mass, *barrier((scale(self._mass, arm), entries)))

    def _mass_matrix(self, motions: Spatial, inertia: Inertia) -> Array:
        """Entry (i, j): the momentum of all that i moves, under the motion of i, seen along the motion of j."""
        entries = tuple(inertia.matrix[i][j] for i in range(3) for j in range(i, 3))
        sums = _sums(self.affects, (*inertia.moment, *entries))
        composite = _inertia(self._composite_mass, sums[:3], sums[3:])
        momenta, motions = barrier((composite.momentum(motions), motions))
        rows, columns = lambda a: a[:, None], lambda a: a[None, :]
        pairs = list(zip((*momenta.ang, *momenta.lin), (*motions.ang, *motions.lin), strict=True))
        product = lambda one, other: add(*(one(a) * other(b) for a, b in pairs))
        lower = jnp.where(self._lower, product(rows, columns), 0.0)
        # Momenta and motions exchanged instead of a transposed matrix: no copy in another memory layout.
        both = jnp.where(np.triu(self._lower.T, 1), product(columns, rows), lower)
        return both + np.diag(self._armature).astype(np.float32)

    def _bias(self, motions: Spatial, inertia: Inertia, qd: Array) -> Array:
        """Forces that keep the joint velocities as they are, without other forces than gravity."""
        moving = _scaled(qd, motions)
        velocity, before = self._along_tree(moving), Spatial(*(_sums(self._before, part) for part in moving))
        change = Spatial(
            cross(before.ang, motions.ang),
            plus(cross(before.ang, motions.lin), cross(before.lin, motions.ang)),
        )
        acceleration = self._along_tree(_scaled(qd, change))
        acceleration = acceleration._replace(lin=plus(acceleration.lin, self._against_gravity))
        momentum, rate = inertia.momentum(velocity), inertia.momentum(acceleration)
        force = Spatial(
            plus(rate.ang, cross(velocity.ang, momentum.ang), cross(velocity.lin, momentum.lin)),
            plus(rate.lin, cross(velocity.ang, momentum.lin)),
        )
        force = Spatial(*(_sums(self.affects, part) for part in barrier(force)))
        return add(dot(motions.ang, force.ang), dot(motions.lin, force.lin))

    def _along_tree(self, parts: Spatial) -> Spatial:
        """Sums over the degrees of freedom that move each link, components [L]."""
        return Spatial(*(_sums(self.affects.T, part) for part in barrier(parts)))


def _scaled(factor: Number, vector: Spatial) -> Spatial:
    """factor · vector."""
    return Spatial(scale(factor, vector.ang), scale(factor, vector.lin))


def _about(axes: Axes, centre: Vec) -> Spatial:
    """Motions of the degrees of freedom, at reference points [D]."""
    return Spatial(axes.hinge, plus(axes.slide, cross(axes.hinge, minus(centre, axes.anchor))))


def dof_axes(tree: Tree, q: Array, rot: Vec, origin: Vec) -> Axes:
    """Axes of all degrees of freedom, given the rotations [L] and origins [L] of links.

    From the last joint of each link to its first, undoing their rotations and translations.
    """
    groups: list[tuple[np.ndarray, Axes]] = []
    for kind in sorted(set(tree.types)):
        links = np.flatnonzero([t == kind for t in tree.types])
        here, turned = pick_all(origin, links), pick_all(rot, links)
        groups += (
            _free_axes(tree, links, here, turned) if kind == "f" else _stack(tree, links, q, here, turned)
        )
    order = np.argsort(np.concatenate([dofs for dofs, _ in groups]))
    full = lambda dofs, parts: jnp.stack([jnp.broadcast_to(a, dofs.shape) for a in parts])
    table = jnp.concatenate([full(dofs, sum(part, ())) for dofs, part in groups], axis=1)[:, order]
    return Axes(tuple(table[0:3]), tuple(table[3:6]), tuple(table[6:9]))


def _free_axes(tree: Tree, links: np.ndarray, here: Vec, turned: Vec) -> list[tuple[np.ndarray, Axes]]:
    """Translations along the world's axes, then rotations about the link's own."""
    none, own = (0.0, 0.0, 0.0), matrix(turned)
    slides = [(tree.dof[links] + k, Axes(none, EYE[k], here)) for k in range(3)]
    return slides + [(tree.dof[links] + 3 + k, Axes(own[k], none, here)) for k in range(3)]


def _stack(tree: Tree, links: np.ndarray, q: Array, here: Vec, turned: Vec) -> list[tuple[np.ndarray, Axes]]:
    found = []
    joint = constants(tree.links.joint[links])
    for k in reversed(range(int(tree.types[links[0]]))):
        dofs, place = tree.dof[links] + k, pick(q, tree.coordinate[links] + k)
        own = matrix(turned)
        hinge, slide = (rotate(own, constants(v[dofs])) for v in (tree.hinges, tree.slides))
        anchor = plus(here, rotate(own, joint))
        found.append((dofs, Axes(hinge, slide, anchor)))
        turned = compose(turned, turn(tree, dofs, -place))
        here = minus(minus(anchor, rotate(matrix(turned), joint)), scale(place, slide))
    return found


def _sums(weights: np.ndarray, vectors: Vec) -> Vec:
    """Weighted sums [A] of components [B], with weights [A, B]."""
    stacked = jnp.stack(vectors)
    # A product calls a library, which is fast on a CPU; a sum is fused with what is summed, which is fast on a GPU.
    product = lambda x: jnp.einsum("ab,nb->na", np.asarray(weights, np.float32), x, precision="highest")
    fused = lambda x: jnp.sum(np.asarray(weights, np.float32) * x[:, None, :], axis=-1)
    return tuple(jax.lax.platform_dependent(stacked, cpu=product, default=fused))


def _roots(parents: np.ndarray) -> np.ndarray:
    roots = np.arange(len(parents))
    for link, parent in enumerate(parents):
        roots[link] = link if parent < 0 else roots[parent]
    return roots


def _before(tree: Tree, below: np.ndarray, dof_link: np.ndarray) -> np.ndarray:
    """[D, D] bool: the degrees of freedom whose motion carries the axis of another along.

    All of the links before, and those before it in the same link. The axes of a free link's translations are fixed,
    and those of its rotations are carried by the translations alone: they turn with the link.
    """
    index = np.arange(len(dof_link))
    carries = below[dof_link[:, None], dof_link].T & (index[:, None] > index)
    for link in np.flatnonzero(tree.free):
        first = tree.dof[link]
        carries[first : first + 3, first : first + 3] = False
        carries[first + 3 : first + 6, first + 3 : first + 6] = False
    return carries


def _principal_axes(links: Links) -> np.ndarray:
    """[3, L, 3] principal axes of inertia in the links' frames."""
    frames = np.array([matrix(floats(q)) for q in links.principal])
    return frames.transpose(1, 0, 2)
