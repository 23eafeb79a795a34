"""Contact impulses.

Impulses are summed per geom over its collision pairs. Both sides of a contact compute it separately, so that no
scatter is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from homing.physics.spring.collision_pairs import CollisionPair, Geoms, Table, collision_pairs_of
from homing.physics.spring.contacts import Contact
from homing.physics.spring.stages import stage
from homing.physics.vectors import (
    Bodies,
    Number,
    Vec,
    add,
    barrier,
    constant,
    cross,
    dot,
    minus,
    mul,
    pick,
    pick_all,
    plus,
    scale,
    slots,
)
from homing.physics.walls import BoundWindow

Array = jax.Array
MAX_UNROLLED_PAIRS = 9  # up to this many pairs per geom are summed unrolled, more by a reduction


class Impulse(NamedTuple):
    """Linear impulse, angular impulse about the centre of mass, and number of contacts of a body."""

    linear: Vec
    angular: Vec
    count: Number


class Side(NamedTuple):
    """The bodies on one side of contacts, with their inverse masses and inertias."""

    bodies: Bodies
    inverse_mass: Number
    inverse_spin: Number

    def arm(self, pos: Vec) -> Vec:
        """Arm from the centre of mass to a point."""
        return minus(pos, self.bodies.pos)

    def vel(self, arm: Vec) -> Vec:
        """Velocity of the point at `arm`."""
        return plus(self.bodies.vel, cross(self.bodies.ang, arm))

    def inverse_effective_mass(self, arm: Vec, direction: Vec) -> Number:
        """Velocity change at `arm` along `direction` per unit impulse along it (inverse effective mass)."""
        lever = cross(arm, direction)
        return add(self.inverse_mass, mul(self.inverse_spin, dot(lever, lever)))


def contact_impulse(
    contact: Contact, own: Side, other: Side | None, friction: Number, bounce: Number, push_out: float
) -> Impulse:
    """The impulse on `own`: restitution, Baumgarte stabilisation and friction.

    other:    None for the world
    push_out: separation speed per metre of penetration
    """
    arm = own.arm(contact.pos)
    vel, away = own.vel(arm), scale(-1.0, contact.normal)
    sides = [(own, arm)]
    if other is not None:
        sides.append((other, other.arm(contact.pos)))
        vel = minus(vel, other.vel(sides[1][1]))
    inverse_mass = lambda direction: add(*(side.inverse_effective_mass(at, direction) for side, at in sides))
    speed = dot(away, vel)
    size = -add(mul(add(1.0, bounce), speed), mul(push_out, contact.dist)) / inverse_mass(away)
    slip = minus(vel, scale(speed, away))
    slip_speed = jnp.sqrt(dot(slip, slip))
    along = scale(1.0 / (1e-6 + slip_speed), slip)
    drag = jnp.minimum(slip_speed / inverse_mass(along), mul(friction, size))
    touches = (contact.dist < 0.0) & (speed < 0.0) & (size > 0.0)
    size = jnp.where(touches, size, 0.0)
    drag = jnp.where(touches & (slip_speed > 1e-3), drag, 0.0)
    linear = minus(scale(size, away), scale(drag, along))
    return Impulse(linear, cross(arm, linear), jnp.where(touches, 1.0, 0.0))


class Collisions:
    """All collision pairs of a model.

    inverse_mass: of the links, [L]
    elasticity:   of the geoms
    push_out:     separation speed per metre of penetration
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        windows: tuple[BoundWindow, ...],
        inverse_mass: np.ndarray,
        elasticity: np.ndarray,
        push_out: float,
    ):
        self._inverse_mass, self._push_out = inverse_mass, push_out
        self._table = Table(model, windows)
        self.groups = list(collision_pairs_of(model, elasticity, self._table))

    def walls(self, link_pos: Array) -> Array:
        """Box centres during an environment step that starts with the links at link_pos [N, L, 3]."""
        return self._table.fill(link_pos)

    def impulses(self, bodies: Bodies, inverse_spin: Number, walls: Array) -> Impulse:
        """Summed contact impulses of each link, components [N, L]."""
        on_links = []
        for geoms, pairs in self.groups:
            found = [self._applied_impulse(geoms, pair, bodies, inverse_spin, walls) for pair in pairs]
            applied = stage(barrier(_sum(found)))
            parts = (applied.linear, applied.angular, (applied.count,))
            for slot in slots(geoms.link[0], len(self._inverse_mass)):
                linear, angular, count = (pick_all(v, *slot) for v in parts)
                on_links.append(Impulse(linear, angular, count[0]))
        return _sum(on_links)

    def _applied_impulse(
        self, geoms: Geoms, pair: CollisionPair, bodies: Bodies, inverse_spin: Number, walls: Array
    ) -> Impulse:
        """Impulse of one collision pair on each geom, components [N, K]."""
        own, other = self._side(bodies, inverse_spin, geoms.link), None
        if isinstance(pair.others, Geoms):
            other = self._side(bodies, inverse_spin, pair.others.link)
        found = stage(pair.contacts(stage(geoms.placed(own.bodies)), other and other.bodies, walls))
        impulse = lambda c: contact_impulse(c, own, other, pair.friction, pair.bounce, self._push_out)
        each = stage([impulse(contact) for contact in found])
        if len(pair.real) > MAX_UNROLLED_PAIRS:
            return jax.tree.map(lambda x: jnp.sum(x, axis=-2), barrier(_sum(each)))
        slot = lambda b, n: jax.tree.map(lambda x: x[..., n, :], b)
        return _sum([slot(b, n) for b in each for n in range(len(pair.real))])

    def _side(self, bodies: Bodies, inverse_spin: Number, link: np.ndarray) -> Side:
        return Side(bodies.pick(link), constant(self._inverse_mass[link]), pick(inverse_spin, link))


def _sum(impulses: Sequence[Impulse]) -> Impulse:
    linear, angular = (plus(*(each[i] for each in impulses)) for i in (0, 1))
    return Impulse(linear, angular, add(*(each.count for each in impulses)))
