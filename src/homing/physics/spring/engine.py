"""Maximal coordinates, joints as stiff springs, collisions as averaged impulses.

The equations of motion are those of brax's spring pipeline, with a memory layout for accelerators: every
component of every vector is its own array [environments, links], and a physics step is a few fused kernels for
all environments.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from homing.physics import mechanism, spring_settings
from homing.physics.engine import Engine, Layout, Links, Timing, layout_of
from homing.physics.mechanism import Actuators
from homing.physics.spring import collision_pairs, joints
from homing.physics.spring.collisions import Collisions
from homing.physics.spring.coordinates import coordinates, start
from homing.physics.spring.joints import Joints
from homing.physics.vectors import (
    EYE,
    Bodies,
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
from homing.physics.walls import WallWindow

Array = jax.Array


class SpringState(struct.PyTreeNode):
    """Joint coordinates [N, ·], and the motion of the links' centres of mass that they are derived from."""

    q: Array
    qd: Array
    bodies: Bodies


class Spring:
    """The spring engine; see the module."""

    def __init__(self, model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]):
        parts, settings = mechanism.read(model), spring_settings.read(model)
        self.frames, self.dt = timing.frames, timing.dt
        self.windows = tuple(window.bind(model) for window in windows)
        self.layout: Layout = layout_of(model, parts.init_q)
        self._timestep = parts.timestep
        self.joints = Joints(parts.links, parts.dofs, settings)
        self.mass = Mass(parts.links, settings.mass_scale, settings.inertia_scale)
        self.motors = Motors(parts.actuators, self.joints, self.layout)
        self._gravity = scale(self._timestep, floats(parts.gravity))
        rates = settings.vel_damping, settings.ang_damping
        self._slow_vel, self._slow_ang = (float(np.exp(rate * self._timestep)) for rate in rates)
        push_out = settings.push_out / self._timestep
        inverse = 1.0 / self.mass.mass
        self.collisions = Collisions(model, self.windows, inverse, settings.elasticity, push_out)

    @classmethod
    def supports(cls, model: mujoco.MjModel) -> str | None:
        """The reason why a model is not supported; None if it is."""
        return next(_unsupported(model), None)

    # -- stepping ---------------------------------------------------------------------------------------

    def init(self, q: Array, qd: Array) -> SpringState:
        return SpringState(q, qd, start(self.joints, q, qd))

    def step(self, state: SpringState, ctrl: Array) -> SpringState:
        motors = self.motors.along_axes(ctrl)
        walls = self.collisions.walls(self.links(state).pos)
        frame = lambda _, bodies: self._frame(bodies, motors, walls)
        bodies = jax.lax.fori_loop(0, self.frames, frame, state.bodies)
        return SpringState(*coordinates(self.joints, bodies), bodies)

    def _frame(self, bodies: Bodies, motors: Vec, walls: Array) -> Bodies:
        """One physics step: forces, then impulses, then integration."""
        bodies = self._accelerated(bodies, motors)
        if not self.collisions.groups:
            return self._moved(bodies, (0.0,) * 3, (0.0,) * 3)
        bodies = bodies._replace(vel=barrier(bodies.vel), ang=barrier(bodies.ang))
        linear, angular, count = self.collisions.impulses(bodies, self.mass.contact_spin(bodies), walls)
        # Impulses are averaged over the contacts of a link.
        weight = 1.0 / (count + 1e-8)
        ang = self.mass.angular_acceleration(bodies, scale(weight, angular))
        return self._moved(bodies, scale(mul(constant(1.0 / self.mass.mass), weight), linear), ang)

    def _accelerated(self, bodies: Bodies, motors: Vec) -> Bodies:
        forces = self.joints.forces(bodies, motors)
        force, torque = self.joints.collect(*(forces if self.collisions.groups else barrier(forces)))
        vel = plus(bodies.vel, scale(constant(self._timestep / self.mass.mass), force), self._gravity)
        ang = plus(bodies.ang, scale(self._timestep, self.mass.angular_acceleration(bodies, torque)))
        return bodies._replace(vel=vel, ang=ang)

    def _moved(self, bodies: Bodies, vel: Vec, ang: Vec) -> Bodies:
        """Bodies one timestep later, after velocity changes vel and ang."""
        vel = plus(scale(self._slow_vel, bodies.vel), vel)
        ang = plus(scale(self._slow_ang, bodies.ang), ang)
        rot = plus(bodies.rot, compose((0.0, *scale(0.5 * self._timestep, ang)), bodies.rot))
        rot = scale(1.0 / jnp.sqrt(dot(rot, rot)), rot)
        return Bodies(plus(bodies.pos, scale(self._timestep, vel)), rot, vel, ang)

    # -- reading ----------------------------------------------------------------------------------------

    def q(self, state: SpringState) -> Array:
        return state.q

    def qd(self, state: SpringState) -> Array:
        return state.qd

    def links(self, state: SpringState) -> Links:
        pos, rot, vel, ang = state.bodies
        arm = rotate(matrix(rot), self.joints.centre)
        parts = (minus(pos, arm), rot, minus(vel, cross(ang, arm)), ang)
        return Links(*(jnp.stack(part, axis=-1) for part in parts))

    def mass_features(self, state: SpringState) -> tuple[Array, Array]:
        return self.mass.features(state.bodies)

    def torques(self, state: SpringState, ctrl: Array) -> Array:
        return self.motors.along_dofs(ctrl)


class Mass:
    """Masses and inertias of links, raised to the powers 1 − scale."""

    def __init__(self, links: mechanism.Links, mass_scale: float, inertia_scale: float):
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


class Motors:
    """Actuators with constant gain, each on one joint."""

    def __init__(self, motor: Actuators, joints: Joints, layout: Layout):
        self._ctrl_range, self._force_range = motor.ctrl_range, motor.force_range
        self._gain, self._gear = motor.gain, motor.gear
        self._motor = np.full(layout.qd_size, -1)
        self._motor[motor.dof] = np.arange(len(motor.dof))
        self._axes = [np.full(len(joints.types), -1) for _ in range(3)]
        for k, axis in enumerate(self._axes):
            links = joints.links_with(k)
            axis[links] = self._motor[joints.dof[links] + k]

    def along_axes(self, ctrl: Array) -> Vec:
        """Forces or torques on each of the three joint axes of each link, components [N, L]."""
        return tuple(self._forces(ctrl, motor) for motor in self._axes)

    def along_dofs(self, ctrl: Array) -> Array:
        """Forces or torques on the degrees of freedom, [N, qd_size]."""
        return jnp.broadcast_to(self._forces(ctrl, self._motor), (*ctrl.shape[:-1], len(self._motor)))

    def _forces(self, ctrl: Array, motor: np.ndarray) -> Number:
        """Forces of the motors with the given indices; 0 for index −1."""
        if np.all(motor < 0):
            return 0.0
        ctrl = jnp.clip(ctrl, *self._ctrl_range.T)
        force = self._gear * jnp.clip(self._gain * ctrl, *self._force_range.T)
        return mul(constant(np.where(motor < 0, 0.0, 1.0)), pick(force, np.maximum(motor, 0)))


def spring_engine(model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]) -> Engine:
    """`Spring`, or brax's own pipeline for a model that it does not support."""
    if Spring.supports(model) is None:
        return Spring(model, timing, windows)
    from homing.physics import brax_pipelines

    return brax_pipelines.Spring(model, timing, windows)


def _unsupported(model: mujoco.MjModel) -> Iterator[str]:
    yield from joints.unsupported(model)
    yield from collision_pairs.unsupported(model)
    yield from mechanism.unsupported(model)
    yield from spring_settings.unsupported(model)
    if model.opt.viscosity > 0 or model.opt.density > 0:
        yield "it has fluid forces"
    if np.any(model.actuator_trntype != mujoco.mjtTrn.mjTRN_JOINT):
        yield "an actuator acts on something other than a joint"
    elif len(set(model.actuator_trnid[:, 0])) < model.nu:
        yield "two actuators share a joint"
    if np.any(model.actuator_biastype != 0):
        yield "an actuator has a bias force"
