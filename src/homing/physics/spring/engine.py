"""Maximal coordinates, joints as stiff springs, collisions as averaged impulses.

The law of motion is that of brax's spring pipeline, laid out for accelerators: every component of every
vector is an array [lanes, links] of its own, and a physics step is a few fused kernels for all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from homing.physics.engine import Engine, Layout, Links, Timing, layout_of
from homing.physics.spring import collision_pairs, joints, model_arrays
from homing.physics.spring.collisions import Collisions
from homing.physics.spring.coordinates import coordinates, start
from homing.physics.spring.joints import Joints
from homing.physics.spring.vectors import (
    EYE,
    Bodies,
    Number,
    Vec,
    add,
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
    scale,
    settle,
    turn,
)
from homing.physics.walls import WallWindow

Array = jax.Array


class SpringState(struct.PyTreeNode):
    """Joint coordinates [N, ·], and the motion of the links' centres of mass that they follow from."""

    q: Array
    qd: Array
    bodies: Bodies


class Spring:
    """Maximal coordinates, joints as stiff springs, collisions as averaged impulses."""

    def __init__(self, model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]):
        mechanism = model_arrays.read(model)
        self.frames, self.dt = timing.frames, timing.dt
        self.windows = tuple(window.bind(model) for window in windows)
        self.layout: Layout = layout_of(model, mechanism.init_q)
        custom, self._timestep = mechanism.custom, mechanism.timestep
        self.joints = Joints(mechanism.links, mechanism.dofs)
        self.mass = Mass(mechanism.links, custom["spring_mass_scale"], custom["spring_inertia_scale"])
        self.motors = Motors(mechanism.drives, self.joints, self.layout)
        self._gravity = scale(self._timestep, floats(mechanism.gravity))
        rates = custom["vel_damping"], custom["ang_damping"]
        self._slow_vel, self._slow_ang = (float(np.exp(rate * self._timestep)) for rate in rates)
        push_out = custom["baumgarte_erp"] / self._timestep
        inverse = 1.0 / self.mass.mass
        self.collisions = Collisions(model, self.windows, inverse, mechanism.elasticity, push_out)

    @classmethod
    def supports(cls, model: mujoco.MjModel) -> str | None:
        """Why a model cannot run here, or None if it can."""
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
        """One physics step: forces, then impulses, then motion."""
        bodies = self._accelerated(bodies, motors)
        if not self.collisions.groups:
            return self._moved(bodies, (0.0,) * 3, (0.0,) * 3)
        bodies = bodies._replace(vel=settle(bodies.vel), ang=settle(bodies.ang))
        push, twist, count = self.collisions.blows(bodies, self.mass.contact_spin(bodies), walls)
        # The contacts of a link share in it.
        share = 1.0 / (count + 1e-8)
        twist = self.mass.spun(bodies, scale(share, twist))
        return self._moved(bodies, scale(mul(constant(1.0 / self.mass.mass), share), push), twist)

    def _accelerated(self, bodies: Bodies, motors: Vec) -> Bodies:
        forces = self.joints.forces(bodies, motors)
        force, torque = self.joints.collect(*(forces if self.collisions.groups else settle(forces)))
        vel = plus(bodies.vel, scale(constant(self._timestep / self.mass.mass), force), self._gravity)
        ang = plus(bodies.ang, scale(self._timestep, self.mass.spun(bodies, torque)))
        return bodies._replace(vel=vel, ang=ang)

    def _moved(self, bodies: Bodies, vel: Vec, ang: Vec) -> Bodies:
        """Bodies whose velocities change by vel and ang, after one timestep."""
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
        arm = turn(matrix(rot), self.joints.centre)
        parts = (minus(pos, arm), rot, minus(vel, cross(ang, arm)), ang)
        return Links(*(jnp.stack(part, axis=-1) for part in parts))

    def mass_features(self, state: SpringState) -> tuple[Array, Array]:
        return self.mass.features(state.bodies)

    def torques(self, state: SpringState, ctrl: Array) -> Array:
        return self.motors.along_dofs(ctrl)


class Mass:
    """Masses and inertias of links, softened by scales."""

    def __init__(self, links: model_arrays.Links, mass_scale: float, inertia_scale: float):
        self.mass = links.mass ** (1 - mass_scale)
        self._spin = links.inertia ** (1 - inertia_scale)
        # Softened altogether, inertia is the same about all axes of all links, and needs no axes.
        self._round = bool(np.all(self._spin == 1.0))
        self._axes = np.stack([np.array(matrix(floats(q))) for q in links.principal])
        # An impulse meets its link's inertia in one number, which brax finds at the link's place in the list
        # of all entries of all inverse inertias: the k-th link takes entry k % 9 of link k // 9.
        place = np.arange(len(self.mass))
        self._entry_of, row, column = place // 9, place % 9 // 3, place % 3
        self._entry_row, self._entry_column = constants(np.eye(3)[row]), constants(np.eye(3)[column])

    def spun(self, bodies: Bodies, torque: Vec) -> Vec:
        """Angular acceleration by a torque."""
        if self._round:
            return torque
        parts = [scale(mul(inverse, dot(e, torque)), e) for e, inverse in self._principal(bodies.rot)]
        return plus(*parts)

    def contact_spin(self, bodies: Bodies) -> Number:
        """The inverse inertia with which each link meets contacts, [N, L]."""
        if self._round:
            return constant(np.array(dot(self._entry_row, self._entry_column)) * np.ones(len(self.mass)))
        there = pick_all(bodies.rot, self._entry_of)
        row, column = self._entry_row, self._entry_column
        parts = self._principal(there, self._entry_of)
        return add(*(mul(inverse, mul(dot(row, e), dot(column, e))) for e, inverse in parts))

    def _principal(self, rot: Vec, index: np.ndarray | None = None) -> list[tuple[Vec, Number]]:
        """Principal axes in the world and inverse inertias about them."""
        index = np.arange(len(self.mass)) if index is None else index
        own = matrix(rot)
        return [
            (turn(own, constants(self._axes[index, k])), constant(1.0 / self._spin[index, k]))
            for k in range(3)
        ]

    def features(self, bodies: Bodies) -> tuple[Array, Array]:
        """Inertia [N, L, 10] and velocity [N, L, 6] of every link about the centre of mass of the whole."""
        share = np.asarray(self.mass / np.sum(self.mass), np.float32)
        centre = tuple(jnp.sum(share * a, axis=-1, keepdims=True) for a in bodies.pos)
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
        return full(*entries, mass), full(*scale(constant(share), bodies.vel), *bodies.ang)


class Motors:
    """Motors that push or turn one joint each, by their own command alone."""

    def __init__(self, motor: model_arrays.Drives, joints: Joints, layout: Layout):
        self._ctrl_range, self._force_range = motor.ctrl_range, motor.force_range
        self._gain, self._gear = motor.gain, motor.gear
        self._motor = np.full(layout.qd_size, -1)
        self._motor[motor.dof] = np.arange(len(motor.dof))
        self._axes = [np.full(len(joints.types), -1) for _ in range(3)]
        for k, axis in enumerate(self._axes):
            links = joints.links_with(k)
            axis[links] = self._motor[joints.dof[links] + k]

    def along_axes(self, ctrl: Array) -> Vec:
        """Forces along or about each of the three axes of each link, [N, L]."""
        return tuple(self._forces(ctrl, motor) for motor in self._axes)

    def along_dofs(self, ctrl: Array) -> Array:
        """[N, qd_size]"""
        return jnp.broadcast_to(self._forces(ctrl, self._motor), (*ctrl.shape[:-1], len(self._motor)))

    def _forces(self, ctrl: Array, motor: np.ndarray) -> Number:
        """Of the given motors; 0 for number -1."""
        if np.all(motor < 0):
            return 0.0
        ctrl = jnp.clip(ctrl, *self._ctrl_range.T)
        force = self._gear * jnp.clip(self._gain * ctrl, *self._force_range.T)
        return mul(constant(np.where(motor < 0, 0.0, 1.0)), pick(force, np.maximum(motor, 0)))


def spring_engine(model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]) -> Engine:
    """This engine, or brax's own pipeline for a model that it cannot run."""
    if Spring.supports(model) is None:
        return Spring(model, timing, windows)
    from homing.physics import brax_pipelines

    return brax_pipelines.Spring(model, timing, windows)


def _unsupported(model: mujoco.MjModel) -> Iterator[str]:
    yield from joints.unsupported(model)
    yield from collision_pairs.unsupported(model)
    yield from model_arrays.unsupported(model)
    if model.opt.viscosity > 0 or model.opt.density > 0:
        yield "it moves in a fluid"
    if np.any(model.actuator_trntype != mujoco.mjtTrn.mjTRN_JOINT):
        yield "a motor acts on something else than a joint"
    elif len(set(model.actuator_trnid[:, 0])) < model.nu:
        yield "two motors share a joint"
    if np.any(model.actuator_biastype != 0):
        yield "a motor reacts to its joint"
