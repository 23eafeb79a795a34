"""Impulses where geoms touch.

Each geom that can touch something meets the others one by one, and what they do to it is added up. Both sides
of a contact work it out for themselves, so nothing is scattered.
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
from homing.physics.spring.vectors import (
    Bodies,
    Number,
    Vec,
    add,
    constant,
    cross,
    dot,
    minus,
    mul,
    pick,
    pick_all,
    plus,
    scale,
    settle,
    slots,
)
from homing.physics.walls import BoundWindow

Array = jax.Array
FEW = 9  # as many others that a geom meets are added up one by one, more by a reduction


class Blow(NamedTuple):
    """What contacts do to a body: impulse, impulse of torque about its centre of mass, how many they are."""

    push: Vec
    twist: Vec
    count: Number


class Side(NamedTuple):
    """The bodies on one side of contacts, and how readily they move and spin."""

    bodies: Bodies
    inverse_mass: Number
    inverse_spin: Number

    def arm(self, pos: Vec) -> Vec:
        return minus(pos, self.bodies.pos)

    def vel(self, arm: Vec) -> Vec:
        return plus(self.bodies.vel, cross(self.bodies.ang, arm))

    def give(self, arm: Vec, direction: Vec) -> Number:
        """Speed that the point at `arm` takes on from a unit impulse along `direction`."""
        lever = cross(arm, direction)
        return add(self.inverse_mass, mul(self.inverse_spin, dot(lever, lever)))


def blow(
    contact: Contact, own: Side, other: Side | None, friction: Number, bounce: Number, push_out: float
) -> Blow:
    """The impulse on `own`: it ends the approach, drives overlapping bodies apart and drags sideways.

    other:    None for the world
    push_out: speed for each metre of overlap
    """
    arm = own.arm(contact.pos)
    vel, away = own.vel(arm), scale(-1.0, contact.normal)
    sides = [(own, arm)]
    if other is not None:
        sides.append((other, other.arm(contact.pos)))
        vel = minus(vel, other.vel(sides[1][1]))
    give = lambda direction: add(*(side.give(at, direction) for side, at in sides))
    speed = dot(away, vel)
    size = -add(mul(add(1.0, bounce), speed), mul(push_out, contact.dist)) / give(away)
    slip = minus(vel, scale(speed, away))
    slip_speed = jnp.sqrt(dot(slip, slip))
    along = scale(1.0 / (1e-6 + slip_speed), slip)
    drag = jnp.minimum(slip_speed / give(along), mul(friction, size))
    touches = (contact.dist < 0.0) & (speed < 0.0) & (size > 0.0)
    size = jnp.where(touches, size, 0.0)
    drag = jnp.where(touches & (slip_speed > 1e-3), drag, 0.0)
    push = minus(scale(size, away), scale(drag, along))
    return Blow(push, cross(arm, push), jnp.where(touches, 1.0, 0.0))


class Collisions:
    """All that can touch in a model.

    inverse_mass: of links, [L]; elasticity: of geoms; push_out: speed for each metre of overlap
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
        """Where boxes stand during an environment step that finds the links at link_pos [N, L, 3]."""
        return self._table.fill(link_pos)

    def blows(self, bodies: Bodies, inverse_spin: Number, walls: Array) -> Blow:
        """What all contacts together do to each link, every component [N, L]."""
        on_links = []
        for geoms, others in self.groups:
            felt = settle(_sum([self._felt(geoms, pair, bodies, inverse_spin, walls) for pair in others]))
            for slot in slots(geoms.link[0], len(self._inverse_mass)):
                push, twist, count = (pick_all(v, *slot) for v in (felt.push, felt.twist, (felt.count,)))
                on_links.append(Blow(push, twist, count[0]))
        return _sum(on_links)

    def _felt(
        self, geoms: Geoms, pair: CollisionPair, bodies: Bodies, inverse_spin: Number, walls: Array
    ) -> Blow:
        """What one pair does to each geom, [N, K]."""
        own, other = self._side(bodies, inverse_spin, geoms.link), None
        if isinstance(pair.others, Geoms):
            other = self._side(bodies, inverse_spin, pair.others.link)
        found = pair.contacts(geoms.placed(own.bodies), other and other.bodies, walls)
        each = [blow(c, own, other, pair.friction, pair.bounce, self._push_out) for c in found]
        if len(pair.real) > FEW:
            return jax.tree.map(lambda x: jnp.sum(x, axis=-2), settle(_sum(each)))
        slot = lambda b, n: jax.tree.map(lambda x: x[..., n, :], b)
        return _sum([slot(b, n) for b in each for n in range(len(pair.real))])

    def _side(self, bodies: Bodies, inverse_spin: Number, link: np.ndarray) -> Side:
        return Side(bodies.pick(link), constant(self._inverse_mass[link]), pick(inverse_spin, link))


def _sum(blows: Sequence[Blow]) -> Blow:
    push, twist = (plus(*(b[i] for b in blows)) for i in (0, 1))
    return Blow(push, twist, add(*(b.count for b in blows)))
