"""The engine interface: all that the rest of Homing uses of a simulator.

An engine steps N independent copies of one model. Its states are opaque pytrees with the environment axis
first, read only through the engine. To add a simulator, implement `Engine` and add it to `_engine`.
"""

from __future__ import annotations

from collections.abc import Callable
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
State = Any  # the physics state of N environments: an opaque pytree, whose type depends on the engine


@dataclass(frozen=True)
class Timing:
    """Time discretisation and solver settings of a body on one pipeline.

    timestep: seconds of one physics step
    frames:   physics steps in one environment step (frame skip)
    gears:    motor gears; None keeps those of the model
    options:  MuJoCo solver options that override those of the model
    contacts: maximum number of contacts that mjx considers, deepest first; None considers all
    """

    timestep: float
    frames: int
    gears: tuple[float, ...] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    contacts: int | None = None

    @property
    def dt(self) -> float:
        """Seconds of one environment step."""
        return self.timestep * self.frames


class Links(struct.PyTreeNode):
    """World frames and velocities of all links, [N, L, ...]; quaternions are scalar first."""

    pos: Array
    rot: Array
    vel: Array
    ang: Array


@dataclass(frozen=True)
class Layout:
    """Names and sizes of a model; `links` are its moving bodies in the simulator's order."""

    links: tuple[str, ...]
    q_size: int
    qd_size: int
    act_size: int
    init_q: np.ndarray = field(repr=False)
    ctrl_range: np.ndarray = field(repr=False)  # [act_size, 2]
    joint_q: dict[str, int] = field(repr=False)  # joint name -> first entry in q

    def link(self, name: str) -> int:
        """Index of a link by name."""
        if name not in self.links:
            raise unknown("link", name, (n for n in self.links if n))
        return self.links.index(name)


class Engine(Protocol):
    """A compiled model that steps N environments."""

    dt: float
    layout: Layout

    def init(self, q: Array, qd: Array) -> State:
        """The state at coordinates q [N, q_size] and velocities qd [N, qd_size]."""
        ...

    def step(self, state: State, ctrl: Array) -> State:
        """One environment step (`frames` physics steps) under ctrl [N, act_size]."""
        ...

    def q(self, state: State) -> Array:
        """Joint coordinates [N, q_size]."""
        ...

    def qd(self, state: State) -> Array:
        """Joint velocities [N, qd_size]."""
        ...

    def links(self, state: State) -> Links:
        """World frames of all links."""
        ...

    def mass_features(self, state: State) -> tuple[Array, Array]:
        """Inertia [N, L, 10] and velocity [N, L, 6] of every link about the robot's centre of mass."""
        ...

    def torques(self, state: State, ctrl: Array) -> Array:
        """Actuator forces on the joints, [N, qd_size]."""
        ...


def load(model: Model, pipeline: str, timing: Timing, windows: tuple[WallWindow, ...] = ()) -> Engine:
    """Compile a model for a pipeline."""
    engine = _engine(pipeline)
    return engine(compiled(model, timing), timing, windows)


def compiled(model: Model, timing: Timing) -> mujoco.MjModel:
    """The MuJoCo model with the timestep, solver options and gears of `timing`."""
    if timing.frames < 1 or timing.timestep <= 0:
        raise ConfigError(f"a step needs at least one frame and a positive timestep, not {timing}")
    model.set_option(timestep=timing.timestep, **dict(timing.options))
    if timing.gears is not None:
        model.set_gear(timing.gears)
    return model.compile()


def _engine(pipeline: str) -> Callable[[mujoco.MjModel, Timing, tuple[WallWindow, ...]], Engine]:
    """The engine constructor of a pipeline; simulators are imported lazily, since that takes seconds."""
    if pipeline == "spring":
        from homing.physics.spring.engine import Spring

        return Spring
    if pipeline == "generalized":
        from homing.physics.generalized.engine import Generalized

        return Generalized
    if pipeline in ("mjx", "mjx_mujoco"):
        from homing.physics import mjx

        return mjx.mjx_engine if pipeline == "mjx" else mjx.MjxMujoco
    if pipeline in ("spring_brax", "generalized_brax"):
        return _brax_engine(pipeline)
    raise unknown("physics pipeline", pipeline, PIPELINES)


def _brax_engine(pipeline: str) -> Callable[[mujoco.MjModel, Timing, tuple[WallWindow, ...]], Engine]:
    """A pipeline of brax, which is optional."""
    try:
        from homing.physics import brax_pipelines
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the pipeline {pipeline} is brax's own, and the package {error.name} is not installed; "
            f"pip install 'homing[brax]', or use {REFERENCE_PIPELINES[pipeline]}"
        ) from error
    return brax_pipelines.Spring if pipeline == "spring_brax" else brax_pipelines.Generalized


PIPELINES = ("spring", "generalized", "mjx")
REFERENCE_PIPELINES = {"spring_brax": "spring", "generalized_brax": "generalized", "mjx_mujoco": "mjx"}
"""The simulators' own pipelines, for comparison; each uses the timing of the pipeline it maps to."""
EULER_DAMPING_OFF = ("disableflags", int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP))


def layout_of(model: mujoco.MjModel, init_q: np.ndarray) -> Layout:
    """Names and sizes of a compiled model."""
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
