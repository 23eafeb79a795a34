"""The seam: what the rest of Homing knows of a simulator.

An engine advances a batch of N independent copies of one model. Its states are opaque pytrees with the lane
axis first; the rest of the code reads them only through the engine. Another simulator takes part by meeting
`Engine` and being named in `ENGINES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import mujoco
import numpy as np
from flax import struct

from homing.errors import ConfigError, unknown
from homing.physics.models import Model
from homing.physics.walls import WallWindow

Array = jax.Array


@dataclass(frozen=True)
class Timing:
    """How one pipeline steps a body.

    timestep: seconds of one physics step
    frames:   physics steps in one environment step
    gears:    motor gears where they differ from the robot file's
    options:  solver options where they differ from the robot file's
    contacts: that mjx reckons with at once, the deepest ones; all that are possible if not given
    """

    timestep: float
    frames: int
    gears: tuple[float, ...] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    contacts: int | None = None

    @property
    def dt(self) -> float:
        return self.timestep * self.frames


class Links(struct.PyTreeNode):
    """Frames of all links in the world, [N, L, ...]; quaternions have the scalar first."""

    pos: Array
    rot: Array
    vel: Array
    ang: Array


@dataclass(frozen=True)
class Layout:
    """Names and sizes of a model: `links` are its moving bodies in the simulator's order."""

    links: tuple[str, ...]
    q_size: int
    qd_size: int
    act_size: int
    init_q: np.ndarray = field(repr=False)
    ctrl_range: np.ndarray = field(repr=False)  # [act_size, 2]
    joint_q: dict[str, int] = field(repr=False)  # joint name -> first entry in q

    def link(self, name: str) -> int:
        if name not in self.links:
            raise unknown("link", name, (n for n in self.links if n))
        return self.links.index(name)


class Engine(Protocol):
    """A model that can be started and stepped, N lanes at a time."""

    dt: float
    layout: Layout

    def init(self, q: Array, qd: Array) -> Any:
        """The state of lanes at rest in q [N, q_size] with velocities qd [N, qd_size]."""
        ...

    def step(self, state: Any, ctrl: Array) -> Any:
        """One environment step (`frames` physics steps) under ctrl [N, act_size]."""
        ...

    def q(self, state: Any) -> Array: ...

    def qd(self, state: Any) -> Array: ...

    def links(self, state: Any) -> Links: ...

    def mass_features(self, state: Any) -> tuple[Array, Array]:
        """Inertia [N, L, 10] and velocity [N, L, 6] of every link about the centre of mass of the whole."""
        ...

    def torques(self, state: Any, ctrl: Array) -> Array:
        """Forces of the motors on the joints, [N, qd_size]."""
        ...


def load(model: Model, pipeline: str, timing: Timing, windows: tuple[WallWindow, ...] = ()) -> Engine:
    """Compile a model for a pipeline."""
    engine = _engine(pipeline)
    return engine(compiled(model, timing), timing, windows)


def compiled(model: Model, timing: Timing) -> mujoco.MjModel:
    """A model with the steps and the gears of a pipeline."""
    if timing.frames < 1 or timing.timestep <= 0:
        raise ConfigError(f"a step needs at least one frame and a positive timestep, not {timing}")
    model.set_option(timestep=timing.timestep, **dict(timing.options))
    if timing.gears is not None:
        model.set_gear(timing.gears)
    return model.compile()


def _engine(pipeline: str) -> Any:
    """What makes an engine; simulators are imported when they are asked for, which takes a while."""
    if pipeline == "spring":
        from homing.physics.spring.engine import spring_engine

        return spring_engine
    if pipeline in ("mjx", "mjx_mujoco"):
        from homing.physics import mjx

        return mjx.mjx_engine if pipeline == "mjx" else mjx.MjxMujoco
    if pipeline in ("generalized", "generalized_brax"):
        from homing.physics import generalized

        return generalized.Generalized if pipeline == "generalized" else generalized.GeneralizedBrax
    if pipeline == "spring_brax":
        from homing.physics import brax_pipelines

        return brax_pipelines.Spring
    raise unknown("physics pipeline", pipeline, PIPELINES)


PIPELINES = ("spring", "generalized", "mjx")
THEIRS = {"spring_brax": "spring", "generalized_brax": "generalized", "mjx_mujoco": "mjx"}
"""The simulators' own pipelines, which ours are measured against: each is tuned like ours."""
EULER_DAMPING_OFF = ("disableflags", int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP))


def layout_of(model: mujoco.MjModel, init_q: np.ndarray) -> Layout:
    """Names and sizes, read off a compiled model."""
    joints = [model.joint(i) for i in range(model.njnt)]
    ctrl_range = np.where(
        (model.actuator_ctrllimited == 1)[:, None], model.actuator_ctrlrange, np.array([-1.0, 1.0])
    )
    return Layout(
        links=tuple(model.body(i).name for i in range(1, model.nbody)),
        q_size=model.nq,
        qd_size=model.nv,
        act_size=model.nu,
        init_q=np.asarray(init_q, np.float32),
        ctrl_range=np.asarray(ctrl_range, np.float32),
        joint_q={j.name: int(j.qposadr[0]) for j in joints},
    )
