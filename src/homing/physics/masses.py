"""Masses and inertias of links."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from homing.physics.mechanism import Links as LinkArrays
from homing.physics.vectors import (
    EYE,
    Bodies,
    Number,
    Vec,
    add,
    constant,
    constants,
    dot,
    floats,
    matrix,
    minus,
    mul,
    pick_all,
    plus,
    rotate,
    scale,
)

Array = jax.Array


class Mass:
    """Masses and inertias of links, raised to the powers 1 − scale."""

    def __init__(self, links: LinkArrays, mass_scale: float, inertia_scale: float):
        self.mass = links.mass ** (1 - mass_scale)
        self._spin = links.inertia ** (1 - inertia_scale)
        # With inertia_scale 1, all inertias are 1 and need no principal axes.
        self._isotropic = bool(np.all(self._spin == 1.0))
        self._axes = np.stack([np.array(matrix(floats(q))) for q in links.principal])
        # brax uses a single scalar inverse inertia per link in contacts, read at the link's index from the
        # flattened list of all inverse inertia entries: link k takes entry k % 9 of link k // 9. Reproduced here.
        index = np.arange(len(self.mass))
        self._entry_of, row, column = index // 9, index % 9 // 3, index % 3
        self._entry_row, self._entry_column = constants(np.eye(3)[row]), constants(np.eye(3)[column])

    def angular_acceleration(self, bodies: Bodies, torque: Vec) -> Vec:
        """Inverse inertia times torque."""
        if self._isotropic:
            return torque
        parts = [scale(mul(inverse, dot(e, torque)), e) for e, inverse in self._principal(bodies.rot)]
        return plus(*parts)

    def contact_spin(self, bodies: Bodies) -> Number:
        """The scalar inverse inertia of each link in contacts, [N, L]."""
        if self._isotropic:
            return constant(np.array(dot(self._entry_row, self._entry_column)) * np.ones(len(self.mass)))
        there = pick_all(bodies.rot, self._entry_of)
        row, column = self._entry_row, self._entry_column
        parts = self._principal(there, self._entry_of)
        return add(*(mul(inverse, mul(dot(row, e), dot(column, e))) for e, inverse in parts))

    def _principal(self, rot: Vec, index: np.ndarray | None = None) -> list[tuple[Vec, Number]]:
        """Principal axes in the world frame and inverse inertias about them."""
        index = np.arange(len(self.mass)) if index is None else index
        own = matrix(rot)
        return [
            (rotate(own, constants(self._axes[index, k])), constant(1.0 / self._spin[index, k]))
            for k in range(3)
        ]

    def features(self, bodies: Bodies) -> tuple[Array, Array]:
        """Inertia [N, L, 10] and velocity [N, L, 6] of every link about the robot's centre of mass."""
        fraction = np.asarray(self.mass / np.sum(self.mass), np.float32)
        centre = tuple(jnp.sum(fraction * a, axis=-1, keepdims=True) for a in bodies.pos)
        arm = minus(bodies.pos, centre)
        square, mass = dot(arm, arm), constant(self.mass)
        axes = [(e, 1.0 / inverse) for e, inverse in self._principal(bodies.rot)]
        entries = [
            add(
                *(mul(spin, e[i] * e[j]) for e, spin in axes), mul(mass, EYE[i][j] * square - arm[i] * arm[j])
            )
            for i in range(3)
            for j in range(3)
        ]
        full = lambda *parts: jnp.stack([jnp.broadcast_to(a, square.shape) for a in parts], axis=-1)
        return full(*entries, mass), full(*scale(constant(fraction), bodies.vel), *bodies.ang)
