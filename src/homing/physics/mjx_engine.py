"""MuJoCo XLA behind the seam."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from homing.errors import ConfigError
from homing.physics.engine import Layout, Links, Timing, layout_of
from homing.physics.quiet import quietly
from homing.physics.walls import WallWindow, place_windows

with quietly():
    from mujoco import mjx

Array = jax.Array


class MjxState(struct.PyTreeNode):
    """What MJX must remember between steps, and the link frames of its last kinematics pass."""

    q: Array
    qd: Array
    warmstart: Array
    pos: Array
    rot: Array
    vel: Array
    ang: Array


class Mjx:
    """MuJoCo's own dynamics and contact solver on the device."""

    def __init__(self, model: mujoco.MjModel, timing: Timing, windows: tuple[WallWindow, ...]):
        self.model = mjx.put_model(model, impl="jax")
        self.frames = timing.frames
        self.dt = timing.dt
        self.windows = tuple(window.bind(model) for window in windows)
        self.layout: Layout = layout_of(model, _initial(model))
        self._roots = np.asarray(model.body_rootid[1:])

    def init(self, q: Array, qd: Array) -> MjxState:
        return jax.vmap(self._start)(q, qd)

    def step(self, state: MjxState, ctrl: Array) -> MjxState:
        return jax.vmap(self._step_lane)(state, ctrl)

    def _start(self, q: Array, qd: Array) -> MjxState:
        data = mjx.make_data(self.model).replace(qpos=q, qvel=qd)
        return self._close(mjx.forward(self.model, data))

    def _step_lane(self, state: MjxState, ctrl: Array) -> MjxState:
        model = self._with_near_walls(state.pos)
        data = mjx.make_data(self.model)
        data = data.replace(qpos=state.q, qvel=state.qd, qacc_warmstart=state.warmstart, ctrl=ctrl)
        first = mjx.step(model, data)
        frame = lambda _, data: mjx.step(model, data)
        return self._close(jax.lax.fori_loop(1, self.frames, frame, first))

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
            "this body observes link inertias, which the mjx pipeline does not give; use spring"
        )

    def torques(self, state: MjxState, ctrl: Array) -> Array:
        raise ConfigError(
            "this body observes motor torques, which the mjx pipeline does not give; use spring"
        )


def _initial(model: mujoco.MjModel) -> np.ndarray:
    """The pose that a robot file names as its start, or the model's own."""
    for i in range(model.nnumeric):
        if model.numeric(i).name == "init_qpos":
            return np.array(model.numeric(i).data)
    return np.array(model.qpos0)
