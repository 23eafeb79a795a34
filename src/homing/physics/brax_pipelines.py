"""brax's own spring and generalized pipelines, for comparison."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from homing.physics.engine import Layout, Links, Timing, layout_of
from homing.physics.quiet import quietly
from homing.physics.walls import WallWindow, place_windows

with quietly():
    from brax import actuator, base, com, kinematics
    from brax.generalized import base as generalized_base
    from brax.generalized import pipeline as generalized
    from brax.io import mjcf
    from brax.spring import base as spring_base
    from brax.spring import pipeline as spring

Array = jax.Array


def load_system(model: mujoco.MjModel) -> base.System:
    """A brax system from a compiled model, without brax's warning at every load."""
    with warnings.catch_warnings(), _default_cpu():
        warnings.filterwarnings("ignore", message="Brax System")
        system = mjcf.load_model(model)
    mjcf.validate_model(model)
    # brax would validate the model again at every trace.
    return system.replace(mj_model=None)


def _default_cpu() -> contextlib.AbstractContextManager[Any]:
    """Load models on the CPU: it takes about sixty tiny programs, each slow to compile for a GPU."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS excludes the CPU
        return contextlib.nullcontext()


class BraxEngine:
    """Base class: subclasses define `_start` and `_frame` for a single environment."""

    def __init__(self, model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]):
        self.system = load_system(model)
        self.frames = timing.frames
        self.dt = timing.dt
        self.windows = tuple(window.bind(model) for window in windows)
        self.layout: Layout = layout_of(model, np.asarray(self.system.init_q))

    def init(self, q: Array, qd: Array):
        return jax.vmap(lambda q, qd: self._start(self.system, q, qd))(q, qd)

    def step(self, state, ctrl: Array):
        return jax.vmap(self._step_one)(state, ctrl)

    def _step_one(self, state, ctrl: Array):
        system = self._with_near_walls(state.x.pos)
        state = self._open(state)
        frame = lambda state, _: (self._frame(system, state, ctrl), None)
        state, _ = jax.lax.scan(frame, state, None, length=self.frames)
        return self._close(state)

    def _with_near_walls(self, pos: Array) -> base.System:
        geom_pos = place_windows(self.windows, self.system.geom_pos, pos)
        return self.system.replace(geom_pos=geom_pos)

    def q(self, state) -> Array:
        return state.q

    def qd(self, state) -> Array:
        return state.qd

    def links(self, state) -> Links:
        return Links(state.x.pos, state.x.rot, state.xd.vel, state.xd.ang)

    def mass_features(self, state) -> tuple[Array, Array]:
        return jax.vmap(self._mass_features)(state.x, state.xd)

    def _mass_features(self, x: base.Transform, xd: base.Motion) -> tuple[Array, Array]:
        inertia = self._inertia()
        x_i = x.vmap().do(inertia.transform)
        total = jnp.sum(inertia.mass)
        centre = jnp.sum(inertia.mass[:, None] * x_i.pos, axis=0) / total
        about = x_i.replace(pos=x_i.pos - centre).vmap().do(inertia)
        masses = jnp.concatenate([about.i.reshape(-1, 9), inertia.mass[:, None]], axis=-1)
        xd_i = base.Transform.create(pos=x_i.pos - x.pos).vmap().do(xd)
        return masses, jnp.concatenate([inertia.mass[:, None] * xd_i.vel / total, xd_i.ang], axis=-1)

    def _inertia(self) -> base.Inertia:
        return self.system.link.inertia

    def torques(self, state, ctrl: Array) -> Array:
        return jax.vmap(lambda a, q, qd: actuator.to_tau(self.system, a, q, qd))(ctrl, state.q, state.qd)


class SpringState(struct.PyTreeNode):
    """The part of brax's spring state that is carried between steps; the rest is derived from it."""

    q: Array
    qd: Array
    x: base.Transform
    xd: base.Motion
    x_i: base.Transform
    xd_i: base.Motion


class Spring(BraxEngine):
    """brax's spring pipeline: maximal coordinates, joints as stiff springs, collisions as averaged impulses."""

    def _start(self, system, q, qd):
        return self._close(spring.init(system, q, qd))

    def _frame(self, system, state, ctrl):
        return spring.step(system, state, ctrl)

    def _open(self, state: SpringState) -> spring_base.State:
        j, jd, a_p, a_c = kinematics.world_to_joint(self.system, state.x, state.xd)
        return spring_base.State(
            q=state.q,
            qd=state.qd,
            x=state.x,
            xd=state.xd,
            contact=None,
            x_i=state.x_i,
            xd_i=state.xd_i,
            j=j,
            jd=jd,
            a_p=a_p,
            a_c=a_c,
            i_inv=com.inv_inertia(self.system, state.x),
            mass=self.system.link.inertia.mass ** (1 - self.system.spring_mass_scale),
        )

    def _close(self, state: spring_base.State) -> SpringState:
        return SpringState(state.q, state.qd, state.x, state.xd, state.x_i, state.xd_i)

    def _inertia(self) -> base.Inertia:
        # The pipeline integrates with scaled masses and inertias; the features report those.
        inertia = self.system.link.inertia
        diagonal = jax.vmap(jnp.diagonal)(inertia.i) ** (1 - self.system.spring_inertia_scale)
        mass = inertia.mass ** (1 - self.system.spring_mass_scale)
        return inertia.replace(i=jax.vmap(jnp.diag)(diagonal), mass=mass)


class Generalized(BraxEngine):
    """brax's generalized pipeline: joint coordinates with a mass matrix, contacts and limits as forces that push."""

    def _start(self, system, q, qd) -> generalized_base.State:
        return generalized.init(system, q, qd)

    def _frame(self, system, state, ctrl) -> generalized_base.State:
        return generalized.step(system, state, ctrl)

    def _open(self, state: generalized_base.State) -> generalized_base.State:
        return state

    def _close(self, state: generalized_base.State) -> generalized_base.State:
        return state
