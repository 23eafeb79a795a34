"""Contacts and joint limits as soft constraints: Jacobian, softness and reference acceleration of each.

MuJoCo's model of constraints: a violated one asks for the acceleration of a spring and damper (`solref`), with an
impedance that grows with the violation (`solimp`). Contacts have a friction pyramid of four edges. All possible
constraints are always there; those that are not violated are rows of zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from homing.physics.generalized.dynamics import Axes
from homing.physics.quiet import quietly
from homing.physics.vectors import (
    Bodies,
    Vec,
    compose,
    constants,
    cross,
    dot,
    matrix,
    minus,
    pick,
    plus,
    rotate,
)

with quietly():
    from mujoco import mjx

Array = jax.Array
TINY = 1e-8


class Rows(NamedTuple):
    """Constraints [C]: Jacobian [C, D], softness and reference acceleration [C]."""

    jacobian: Array
    softness: Array
    target: Array


class Limits:
    """Limits of hinges and slides."""

    def __init__(self, model: mujoco.MjModel):
        joints = np.flatnonzero(
            (model.jnt_limited == 1) & (model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE))
        )
        self._coordinate, self._dof = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        single = lambda x: np.asarray(x, np.float32)
        self._low, self._high = (single(model.jnt_range[joints, k]) for k in range(2))
        self._solref, self._solimp = single(model.jnt_solref[joints]), single(model.jnt_solimp[joints])
        self._weight = single(model.dof_invweight0[self._dof])
        self._unit = np.eye(model.nv, dtype=np.float32)[self._dof]

    def rows(self, q: Array, qd: Array) -> Rows:
        """One constraint for each joint with limits."""
        if not len(self._dof):
            return _none(len(qd))
        place = pick(q, self._coordinate)
        from_low, from_high = place - self._low, self._high - place
        violation = jnp.minimum(jnp.minimum(from_low, from_high), 0.0)
        active = (violation < 0).astype(jnp.float32)
        side = jnp.where(from_low < from_high, active, -active)
        speed = side * pick(qd, self._dof)
        impedance, target = _response(self._solref, self._solimp, violation, speed)
        softness = self._weight * (1 - impedance) / (impedance + TINY)
        return Rows(side[:, None] * self._unit, active * softness, active * target)


class Contacts:
    """Contacts between geoms; where and how deep they are is found by MJX."""

    def __init__(self, model: mujoco.MjModel, affects: np.ndarray):
        self._model = mjx.put_model(model, impl="jax")
        self._count = int(mjx.make_data(self._model)._impl.ncon)
        self._link = np.asarray(model.geom_bodyid) - 1
        self._quat = constants(np.asarray(model.geom_quat, np.float32))
        # The world is the last row: no degree of freedom moves it.
        self._affects = np.concatenate([affects.T, np.zeros((1, len(affects)), bool)]).astype(np.float32)
        weight = model.body_invweight0[1:, 0]
        # As in brax, the world as the second body of a contact (a wall) has the weight of the last link.
        self._weight = np.array([[*weight, 0.0], [*weight, weight[-1]]], np.float32)

    def geom_pos(self) -> Array:
        """Positions of geoms in the frames of their bodies, [G, 3]."""
        return self._model.geom_pos

    def rows(self, geom_pos: Array, bodies: Bodies, origin: Vec, axes: Axes, qd: Array) -> Rows:
        """Four constraints for each possible contact, one for each edge of its friction pyramid."""
        if not self._count:
            return _none(len(qd))
        contact = self._found(geom_pos, bodies, origin)
        links = jnp.asarray(self._link)[contact.geom]  # [K, 2]
        first, second = links[:, 0], links[:, 1]
        side = jnp.asarray(self._affects)[second] - jnp.asarray(self._affects)[first]
        jacobian = _pyramid(contact, axes) * side[:, None, :] * (contact.dist < 0)[:, None, None]
        speed = jnp.sum(jacobian * qd, axis=-1)  # [K, 4]
        impedance, target = _response(
            contact.solref[:, None], contact.solimp[:, None], contact.dist[:, None], speed
        )
        weight = jnp.asarray(self._weight)
        weight = weight[0, first] + weight[1, second]
        squared = contact.friction[:, 0] ** 2
        softness = (weight * (1 + squared) * 2 * squared)[:, None] * (1 - impedance) / (impedance + TINY)
        active = (contact.dist < 0)[:, None]
        flat = lambda x: jnp.where(active, x, 0.0).reshape(-1)
        return Rows(
            jacobian.reshape(-1, len(qd)), flat(jnp.broadcast_to(softness, speed.shape)), flat(target)
        )

    def _found(self, geom_pos: Array, bodies: Bodies, origin: Vec) -> mjx.Contact:
        """All possible contacts, [K, ...]."""
        with_world = lambda x, world: pick(jnp.append(x, world), self._link % (len(x) + 1))
        place = tuple(with_world(a, 0.0) for a in origin)
        turned = tuple(
            with_world(a, world) for a, world in zip(bodies.rot, (1.0, 0.0, 0.0, 0.0), strict=True)
        )
        pos = plus(place, rotate(matrix(turned), tuple(geom_pos.T)))
        columns = [jnp.stack(column, axis=-1) for column in matrix(compose(turned, self._quat))]
        data = mjx.make_data(self._model).replace(
            geom_xpos=jnp.stack(pos, axis=-1), geom_xmat=jnp.stack(columns, axis=-1)
        )
        return mjx.collision(self._model, data)._impl.contact


def _pyramid(contact: mjx.Contact, axes: Axes) -> Array:
    """Velocities [K, 4, D] along the edges of the friction pyramid that degrees of freedom give to contact points."""
    point = tuple(contact.pos[:, i, None] for i in range(3))
    velocity = plus(axes.slide, cross(axes.hinge, minus(point, axes.anchor)))  # components [K, D]
    along = lambda row: dot(tuple(contact.frame[:, row, i, None] for i in range(3)), velocity)
    normal, *tangents = (along(row) for row in range(3))
    friction = contact.friction[:, :1]
    edges = [normal + sign * friction * tangent for tangent in tangents for sign in (1.0, -1.0)]
    return jnp.stack(edges, axis=1)


def _response(solref: Array, solimp: Array, violation: Array, speed: Array) -> tuple[Array, Array]:
    """Impedance and reference acceleration of violated constraints (MuJoCo's `solref` and `solimp`)."""
    time, ratio = solref[..., 0], solref[..., 1]
    low, high, width, middle, power = (solimp[..., i] for i in range(5))
    x = jnp.minimum(jnp.abs(violation) / width, 1.0)
    rising = x**power / middle ** (power - 1)
    settling = 1 - (1 - x) ** power / (1 - middle) ** (power - 1)
    impedance = jnp.clip(low + jnp.where(x < middle, rising, settling) * (high - low), low, high)
    # Negative numbers are stiffness and damping themselves.
    damping = jnp.where(ratio <= 0, -ratio / high, 2 / (high * time))
    stiffness = jnp.where(time <= 0, -time / high**2, 1 / (high * time * ratio) ** 2)
    return impedance, -damping * speed - stiffness * impedance * violation


def _none(size: int) -> Rows:
    return Rows(jnp.zeros((0, size)), jnp.zeros((0,)), jnp.zeros((0,)))
