"""Joint coordinates with a mass matrix; contacts and limits as forces that only push.

A physics step solves for the forces of contacts and limits and inverts the mass matrix, both in a fixed number of
cheap iterations (`homing.physics.solvers`). The equations are those of brax's generalized pipeline, which iterates
until the slowest environment has converged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from homing.compile import xla
from homing.errors import ConfigError
from homing.physics import mechanism
from homing.physics.engine import Layout, Links, Timing, layout_of
from homing.physics.generalized.constraints import Contacts, Limits, Rows
from homing.physics.generalized.dynamics import Dynamics, dof_axes
from homing.physics.kinematics import Tree, link_frames, start
from homing.physics.masses import Mass
from homing.physics.solvers import contact_forces, inverse
from homing.physics.vectors import Bodies, compose, matrix, minus, pick, rotate, scale
from homing.physics.walls import WallWindow, place_windows

Array = jax.Array
TINY = 1e-8
MAX_KERNEL_CONSTRAINTS = 64
"""Largest number of contacts and limits of the kernel: its matrices are kept in the registers of four warps."""


class GeneralizedState(struct.PyTreeNode):
    """Joint coordinates [N, ·], and the motion of the links' centres of mass, which follows from them."""

    q: Array
    qd: Array
    bodies: Bodies


class Equations(NamedTuple):
    """The equations of one physics step: inverse mass matrix [D, D], forces [D], contacts and limits [C]."""

    inverse_mass: Array
    force: Array
    rows: Rows

    def constraint_force(self) -> Array:
        """Generalized force [D] of the contacts and limits."""
        jacobian, softness, target = self.rows
        if not jacobian.shape[0]:
            return jnp.zeros_like(self.force)
        given = (jacobian, self.inverse_mass, softness, self.force, target)
        if not xla.kernels() or max(jacobian.shape) > MAX_KERNEL_CONSTRAINTS:
            return contact_forces(*given)
        from homing.physics import kernels

        return jax.lax.platform_dependent(*given, cuda=kernels.contact_forces, default=contact_forces)


class Generalized:
    """The generalized engine; see the module."""

    def __init__(self, model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]):
        if reason := self.supports(model):
            raise ConfigError(
                f"the generalized pipeline does not support this model: {reason}; choose another pipeline, "
                "for example mjx"
            )
        parts = mechanism.read(model)
        self.frames, self.dt = timing.frames, timing.dt
        self.windows = tuple(window.bind(model) for window in windows)
        self.layout: Layout = layout_of(model, parts.init_q)
        self.tree, self._timestep = Tree(parts.links, parts.dofs), parts.timestep
        single = lambda x: np.asarray(x, np.float32)
        self.dynamics = Dynamics(self.tree, model.dof_armature, parts.gravity)
        self.limits, self.contacts = Limits(model), Contacts(model, self.dynamics.affects)
        self.motors = Motors(parts.actuators, self.layout.qd_size)
        self.masses = Mass(parts.links, 0.0, 0.0)
        self._damping, self._stiffness = single(model.dof_damping), single(_stiffness(model))
        self._coordinate = _coordinates(self.tree)

    @classmethod
    def supports(cls, model: mujoco.MjModel) -> str | None:
        """The reason why a model is not supported; None if it is."""
        return next(_unsupported(model), None)

    # -- stepping ---------------------------------------------------------------------------------------

    def init(self, q: Array, qd: Array) -> GeneralizedState:
        return GeneralizedState(q, qd, start(self.tree, q, qd))

    def step(self, state: GeneralizedState, ctrl: Array) -> GeneralizedState:
        geom_pos = jax.vmap(self._near_walls)(self.links(state).pos)
        frame = lambda _, carry: jax.vmap(self._frame)(*carry, ctrl, geom_pos)
        q, qd = jax.lax.fori_loop(0, self.frames, frame, (state.q, state.qd))
        return self.init(q, qd)

    def _near_walls(self, pos: Array) -> Array:
        """Geom positions [G, 3], with walls placed around the links at pos [L, 3]."""
        return place_windows(self.windows, self.contacts.geom_pos(), pos)

    def _frame(self, q: Array, qd: Array, ctrl: Array, geom_pos: Array) -> tuple[Array, Array]:
        """One physics step of one environment: semi-implicit Euler."""
        # The GPU default is TF32, with a mantissa of ten bits.
        with jax.default_matmul_precision("highest"):
            equations = self.equations(q, qd, ctrl, geom_pos)
            force = equations.force + equations.constraint_force()
            qd = qd + self._timestep * (equations.inverse_mass @ force)
        return self._moved(q, qd), qd

    def equations(self, q: Array, qd: Array, ctrl: Array, geom_pos: Array) -> Equations:
        """The equations of a physics step of one environment."""
        bodies = start(self.tree, q, None)
        origin = minus(bodies.pos, rotate(matrix(bodies.rot), self.tree.centre))
        axes = jax.lax.optimization_barrier(dof_axes(self.tree, q, bodies.rot, origin))
        masses, bias = self.dynamics.equations(axes, bodies, qd)
        passive = -self._stiffness * pick(q, self._coordinate) - self._damping * qd
        contacts = self.contacts.rows(geom_pos, bodies, origin, axes, qd)
        rows = Rows(*(jnp.concatenate(pair) for pair in zip(contacts, self.limits.rows(q, qd), strict=True)))
        return Equations(inverse(masses), passive - bias + self.motors.forces(ctrl, q, qd), rows)

    def _moved(self, q: Array, qd: Array) -> Array:
        """Coordinates one timestep later, at new velocities."""
        rate = np.zeros(len(q), int)
        rate[self._coordinate] = np.arange(len(qd))
        moves = np.isin(np.arange(len(q)), self._coordinate).astype(np.float32)
        after = q + self._timestep * moves * pick(qd, rate)
        for link in np.flatnonzero(self.tree.free):
            at, dof = self.tree.coordinate[link] + 3, self.tree.dof[link] + 3
            after = after.at[at : at + 4].set(self._turned(q[at : at + 4], qd[dof : dof + 3]))
        return after

    def _turned(self, rot: Array, ang: Array) -> Array:
        """A quaternion one timestep later, at an angular velocity in its own frame."""
        speed = jnp.linalg.norm(ang) + TINY
        half = 0.5 * self._timestep * speed
        after = jnp.stack(compose(tuple(rot), (jnp.cos(half), *scale(jnp.sin(half) / speed, tuple(ang)))))
        return after / jnp.linalg.norm(after)

    # -- reading ----------------------------------------------------------------------------------------

    def q(self, state: GeneralizedState) -> Array:
        return state.q

    def qd(self, state: GeneralizedState) -> Array:
        return state.qd

    def links(self, state: GeneralizedState) -> Links:
        return link_frames(self.tree, state.bodies)

    def mass_features(self, state: GeneralizedState) -> tuple[Array, Array]:
        return self.masses.features(state.bodies)

    def torques(self, state: GeneralizedState, ctrl: Array) -> Array:
        return jax.vmap(self.motors.forces)(ctrl, state.q, state.qd)


class Motors:
    """Actuators on joints: a gain, and a bias that is affine in the joint's coordinate and velocity."""

    def __init__(self, motors: mechanism.Actuators, size: int):
        self._motors = motors
        self._onto = (np.arange(size)[:, None] == motors.dof).astype(np.float32)

    def forces(self, ctrl: Array, q: Array, qd: Array) -> Array:
        """Forces or torques on the degrees of freedom [D]."""
        motors = self._motors
        if not len(motors.dof):
            return jnp.zeros_like(qd)
        single = lambda x: np.asarray(x, np.float32)
        gear, bias = single(motors.gear), single(motors.bias)
        force = single(motors.gain) * jnp.clip(ctrl, *single(motors.ctrl_range.T))
        if np.any(bias):
            length, speed = gear * pick(q, motors.coordinate), gear * pick(qd, motors.dof)
            force = force + bias[:, 0] + bias[:, 1] * length + bias[:, 2] * speed
        force = gear * jnp.clip(force, *single(motors.force_range.T))
        return jnp.sum(self._onto * force, axis=-1)


def _coordinates(tree: Tree) -> np.ndarray:
    """Entry in q of each degree of freedom; of a free link's rotations a vector part of its quaternion."""
    found = []
    for at, kind in zip(tree.coordinate, tree.types, strict=True):
        found += [at + np.array([0, 1, 2, 4, 5, 6])] if kind == "f" else [at + np.arange(int(kind))]
    return np.concatenate(found)


def _stiffness(model: mujoco.MjModel) -> np.ndarray:
    """Stiffness of each degree of freedom; free joints have none."""
    stiffness = np.asarray(model.jnt_stiffness)[model.dof_jntid]
    return np.where(model.jnt_type[model.dof_jntid] == mujoco.mjtJoint.mjJNT_FREE, 0.0, stiffness)


def _unsupported(model: mujoco.MjModel) -> Iterator[str]:
    yield from mechanism.unsupported(model)
    if np.any(model.jnt_type == mujoco.mjtJoint.mjJNT_BALL) or np.any(model.body_jntnum[1:] == 0):
        yield "it has ball joints, or bodies without a joint"
    if model.opt.viscosity > 0 or model.opt.density > 0:
        yield "it has fluid forces"
    if np.any(model.actuator_trntype != mujoco.mjtTrn.mjTRN_JOINT):
        yield "an actuator acts on something other than a joint"
    if np.any(model.actuator_biastype > int(mujoco.mjtBias.mjBIAS_AFFINE)):
        yield "an actuator has a bias force that is not affine"
    if np.any(model.qpos_spring[model.jnt_qposadr[model.jnt_stiffness > 0]]):
        yield "a joint's spring does not rest at 0"
