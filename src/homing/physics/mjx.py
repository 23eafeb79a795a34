"""MuJoCo XLA behind the engine interface, with faster solvers for contact forces and accelerations.

MJX factorises a small matrix in every solver iteration, which a GPU does by library calls, and its line search
is a `while` loop that runs until the slowest environment is done.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from homing.compile import xla
from homing.errors import ConfigError
from homing.physics import box_contacts, newton
from homing.physics.engine import Layout, Links, Timing, layout_of
from homing.physics.kinematics import in_subtree
from homing.physics.numerics import rest_pose
from homing.physics.quiet import quietly
from homing.physics.solvers import Constraints, constrained, solve
from homing.physics.walls import WallWindow, place_windows

with quietly():
    from mujoco import mjx
    from mujoco.mjx._src import scan, support

Array = jax.Array
INTEGRATORS = (mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
MAX_ITERATIONS = 20
"""Cap on the solver's iterations; nearly all have converged long before."""
MAX_COORDINATES = 40
"""Largest number of coordinates for elimination by scalar operations."""

_links_apart = contextvars.ContextVar("links_apart", default=False)


class MjxState(struct.PyTreeNode):
    """The part of MJX's data that is carried between steps, and the link frames of its last kinematics pass."""

    q: Array
    qd: Array
    warmstart: Array
    pos: Array
    rot: Array
    vel: Array
    ang: Array


class MjxMujoco:
    """MJX with its own contact solver."""

    def __init__(self, model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]):
        if model.na:
            raise ConfigError(
                "this model has actuators with internal state, which the mjx pipeline does not support; "
                "use stateless actuators"
            )
        self.model = mjx.put_model(model, impl="jax")
        self.frames, self.contacts = timing.frames, timing.contacts
        self.dt = timing.dt
        self.windows = tuple(window.bind(model) for window in windows)
        self._parallel = box_contacts.are_parallel(model)
        self.layout: Layout = layout_of(model, rest_pose(model))
        self._roots = np.asarray(model.body_rootid[1:])

    def init(self, q: Array, qd: Array) -> MjxState:
        return _with_links_apart(jax.vmap(self._start))(q, qd)

    def step(self, state: MjxState, ctrl: Array) -> MjxState:
        return _with_links_apart(jax.vmap(self._step_one))(state, ctrl)

    def _start(self, q: Array, qd: Array) -> MjxState:
        data = mjx.make_data(self.model).replace(qpos=q, qvel=qd)
        for part in (mjx.kinematics, mjx.com_pos, mjx.com_vel):
            data = part(self.model, data)
        return self._close(data)

    def _step_one(self, state: MjxState, ctrl: Array) -> MjxState:
        model = self._with_near_walls(state.pos)

        def frame(_: Array, state: MjxState) -> MjxState:
            data = mjx.make_data(self.model)
            data = data.replace(qpos=state.q, qvel=state.qd, qacc_warmstart=state.warmstart, ctrl=ctrl)
            return self._close(self._frame(model, data))

        return jax.lax.fori_loop(0, self.frames, frame, state)

    def _frame(self, model: mjx.Model, data: mjx.Data) -> mjx.Data:
        return mjx.step(model, data)

    def _with_near_walls(self, pos: Array) -> mjx.Model:
        geom_pos = place_windows(self.windows, self.model.geom_pos, pos)
        return self.model.replace(geom_pos=geom_pos)

    def _close(self, data: mjx.Data) -> MjxState:
        offset = data.xpos[1:] - data.subtree_com[self._roots]
        ang, vel = data.cvel[1:, :3], data.cvel[1:, 3:]
        return MjxState(
            q=data.qpos,
            qd=data.qvel,
            warmstart=data.qacc_warmstart,
            pos=data.xpos[1:],
            rot=data.xquat[1:],
            vel=vel - jnp.cross(offset, ang),
            ang=ang,
        )

    def q(self, state: MjxState) -> Array:
        return state.q

    def qd(self, state: MjxState) -> Array:
        return state.qd

    def links(self, state: MjxState) -> Links:
        return Links(state.pos, state.rot, state.vel, state.ang)

    def mass_features(self, state: MjxState) -> tuple[Array, Array]:
        raise ConfigError(
            "this body observes link inertias, which the mjx pipeline does not provide; use spring"
        )

    def torques(self, state: MjxState, ctrl: Array) -> Array:
        raise ConfigError(
            "this body observes actuator torques, which the mjx pipeline does not provide; use spring"
        )


class Mjx(MjxMujoco):
    """MJX with the unrolled solvers of `homing.physics.solvers`; the equations are the same."""

    def _frame(self, model: mjx.Model, data: mjx.Data) -> mjx.Data:
        # The GPU default is TF32, with a mantissa of ten bits.
        with jax.default_matmul_precision("highest"):
            for part in (mjx.kinematics, mjx.com_pos, mjx.crb):
                data = part(model, data)
            with box_contacts.closed_forms(self._parallel):
                data = mjx.collision(model, data)
            data = mjx.make_constraint(model, _with_deepest(data, self.contacts))
            data = mjx.fwd_actuation(model, mjx.fwd_velocity(model, mjx.transmission(model, data)))
            force = data.qfrc_passive - data.qfrc_bias + data.qfrc_actuator
            return self._move(model, data, mjx.full_m(model, data), force)

    def _move(self, model: mjx.Model, data: mjx.Data, mass: Array, force: Array) -> mjx.Data:
        implicit = model.opt.integrator == mjx.IntegratorType.IMPLICITFAST
        if implicit:
            # Contacts and servos are solved together: (M − h ∂f/∂v) a = f + contact forces. MuJoCo finds contact
            # forces with M alone, which makes stiff servos unstable where they press against something.
            mass = mass + model.opt.timestep * _damping(model, data)
        # The barrier stops XLA from recomputing these in every solver iteration.
        mass, force, constraints = jax.lax.optimization_barrier((mass, force, _constraints(data)))
        iterations = min(int(model.opt.iterations), MAX_ITERATIONS)
        acceleration, push = _constrained(mass, force, constraints, data.qacc_warmstart, iterations)
        qacc = acceleration
        if not implicit and not model.opt.disableflags & mjx.DisableBit.EULERDAMP:
            qacc = solve(mass + model.opt.timestep * jnp.diag(model.dof_damping), force + push)
        moved = mjx.euler(_undamped(model), data.replace(qacc=qacc))
        return moved.replace(qacc_warmstart=acceleration)

    @classmethod
    def supports(cls, model: mujoco.MjModel) -> str | None:
        """Why a model cannot run here, or None if it can."""
        has = {
            "elliptic friction cones": model.opt.cone != mujoco.mjtCone.mjCONE_PYRAMIDAL,
            "a solver other than Newton's": model.opt.solver != mujoco.mjtSolver.mjSOL_NEWTON,
            "an integrator other than Euler's or implicitfast": model.opt.integrator not in INTEGRATORS,
            "a medium": bool(model.opt.density or model.opt.viscosity),
            "joint friction": bool(np.any(model.dof_frictionloss)),
            "tendons": model.ntendon > 0,
            "too many joints": model.nv > MAX_COORDINATES,
        }
        return next((f"it has {what}" for what, there in has.items() if there), None)


def _with_links_apart(fn: Callable[..., MjxState]) -> Callable[..., MjxState]:
    """On a CPU, compute links one after the other.

    Fused into one loop there, each link would compute its parents anew, and each of these theirs: a step of an arm
    of seven joints then takes thousands of times as long (jaxlib 0.10).
    """

    def traced(*args: Array) -> MjxState:
        before = _links_apart.set(jax.default_backend() == "cpu")
        try:
            return fn(*args)
        finally:
            _links_apart.reset(before)

    return traced


def _along_tree(body_tree: Callable[..., Any]) -> Callable[..., Any]:
    """MJX's recursion along the tree of links, with barriers between them where asked for."""

    @functools.wraps(body_tree)
    def traced(model: mjx.Model, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        apart = (lambda *given: jax.lax.optimization_barrier(fn(*given))) if _links_apart.get() else fn
        return body_tree(model, apart, *args, **kwargs)

    return traced


def _jacobian(model: mjx.Model, data: mjx.Data, point: Array, body: Array) -> tuple[Array, Array]:
    """MJX's Jacobians [V, 3] of a point of a body. Which coordinates move it is a table, there a scan of the tree."""
    moves = jnp.asarray(in_subtree(model.body_parentid)[model.dof_bodyid].T, jnp.float32)[body]
    offset = point - data.subtree_com[jnp.asarray(model.body_rootid)[body]]
    turns = data.cdof[:, :3]
    moved = data.cdof[:, 3:] + jnp.cross(turns, offset)
    return moved * moves[:, None], turns * moves[:, None]


scan.body_tree = _along_tree(scan.body_tree)
support.jac = _jacobian


def mjx_engine(model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]) -> MjxMujoco:
    """`Mjx`, or `MjxMujoco` for a model that it does not support."""
    return (Mjx if Mjx.supports(model) is None else MjxMujoco)(model, timing, windows)


def _constrained(
    mass: Array, force: Array, constraints: Constraints, warm_start: Array, iterations: int
) -> tuple[Array, Array]:
    plain = functools.partial(constrained, iterations=iterations)
    if not xla.cuda_kernels(oldest=xla.OLDEST) or not newton.fits(len(force), len(constraints.target)):
        return plain(mass, force, constraints, warm_start)
    kernel = functools.partial(newton.constrained, iterations=iterations)
    return jax.lax.platform_dependent(mass, force, constraints, warm_start, cuda=kernel, default=plain)


def _damping(model: mjx.Model, data: mjx.Data) -> Array:
    """−∂force/∂velocity [D, D] of joints and servos; a servo at its force limit has none, as in MuJoCo.

    MJX itself forgets the limit, which slows servos that are far from their targets.
    """
    bias = jnp.where(model.actuator_biastype == mjx.BiasType.AFFINE, model.actuator_biasprm[:, 2], 0.0)
    gain = jnp.where(model.actuator_gaintype == mjx.GainType.AFFINE, model.actuator_gainprm[:, 2], 0.0)
    low, high = model.actuator_forcerange[:, 0], model.actuator_forcerange[:, 1]
    beyond = (data.actuator_force <= low) | (data.actuator_force >= high)
    slope = jnp.where(model.actuator_forcelimited & beyond, 0.0, bias + gain * data.ctrl)
    moment = data._impl.actuator_moment
    # A sum of few terms: XLA fuses it with its surroundings, and merges no product of all environments into it.
    servos = jnp.sum((moment * slope[:, None])[:, :, None] * moment[:, None, :], axis=0)
    return jnp.diag(model.dof_damping) - servos


def _undamped(model: mjx.Model) -> mjx.Model:
    flags: Any = model.opt.disableflags | mjx.DisableBit.EULERDAMP
    return cast(mjx.Model, model.tree_replace({"opt.disableflags": flags}))


def _with_deepest(data: mjx.Data, count: int | None) -> mjx.Data:
    """Keep the `count` deepest or nearest contacts; the others would mostly be inactive."""
    contact = data._impl.contact
    if count is None or count >= len(contact.dim) or len(set(contact.dim)) > 1:
        return data
    kept = jax.lax.top_k(-contact.dist, count)[1]
    contact = jax.tree.map(lambda field: field[kept], contact).replace(dim=contact.dim[:count])
    return cast(mjx.Data, data.tree_replace({"_impl.contact": contact}))


def _constraints(data: mjx.Data) -> Constraints:
    inner = data._impl
    equalities = jnp.arange(inner.efc_J.shape[0]) < inner.ne
    return Constraints(inner.efc_J, inner.efc_aref, inner.efc_D, equalities)
