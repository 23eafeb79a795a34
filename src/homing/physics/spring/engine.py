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

from homing.errors import ConfigError
from homing.physics import mechanism, spring_settings
from homing.physics.engine import Layout, Links, Timing, layout_of
from homing.physics.kinematics import link_frames, start
from homing.physics.masses import Mass
from homing.physics.mechanism import Actuators
from homing.physics.spring import collision_pairs, joints
from homing.physics.spring.collisions import Collisions
from homing.physics.spring.coordinates import coordinates
from homing.physics.spring.joints import Joints
from homing.physics.spring.stages import stage, stages_of
from homing.physics.vectors import (
    Bodies,
    Number,
    Vec,
    barrier,
    compose,
    constant,
    dot,
    floats,
    mul,
    pick,
    plus,
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
        if reason := self.supports(model):
            raise ConfigError(
                f"the spring pipeline does not support this model: {reason}; choose another pipeline, "
                "for example mjx or spring_brax"
            )
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

        def frame(count: Array, bodies: Bodies) -> Bodies:
            with stages_of(count):
                return self._frame(bodies, motors, walls)

        bodies = jax.lax.fori_loop(0, self.frames, frame, state.bodies)
        return SpringState(*coordinates(self.joints, bodies), bodies)

    def _frame(self, bodies: Bodies, motors: Vec, walls: Array) -> Bodies:
        """One physics step: forces, then impulses, then integration."""
        bodies = self._accelerated(bodies, motors)
        if not self.collisions.groups:
            return self._moved(bodies, (0.0,) * 3, (0.0,) * 3)
        bodies = bodies._replace(vel=stage(barrier(bodies.vel)), ang=stage(barrier(bodies.ang)))
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
        return link_frames(self.joints, state.bodies)

    def mass_features(self, state: SpringState) -> tuple[Array, Array]:
        return self.mass.features(state.bodies)

    def torques(self, state: SpringState, ctrl: Array) -> Array:
        return self.motors.along_dofs(ctrl)


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
