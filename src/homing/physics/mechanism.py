"""A compiled model as NumPy arrays for our own engines, rounded to float32.

NumPy rather than JAX: reading a model then compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

from homing.physics.numerics import rest_pose, rounded


@dataclass(frozen=True)
class Links:
    """The moving bodies, [L, ...]; quaternions are scalar first."""

    types: str  # one character per link: f for a free joint, else the number of joints
    parents: np.ndarray  # −1 is the world
    pos: np.ndarray  # in the parent's frame; zero for a free link, whose position is in q
    rot: np.ndarray
    joint: np.ndarray  # position of its joints, in the link's frame
    centre: np.ndarray  # of mass, in the link's frame
    principal: np.ndarray  # rotation to the principal axes of inertia
    mass: np.ndarray
    inertia: np.ndarray  # [L, 3] about the principal axes


@dataclass(frozen=True)
class Dofs:
    """Degrees of freedom, [qd_size, ...]."""

    hinges: np.ndarray  # axes, zero for a slide
    slides: np.ndarray  # axes, zero for a hinge
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Actuators:
    """Motors, [act_size, ...]."""

    dof: np.ndarray
    coordinate: np.ndarray
    ctrl_range: np.ndarray
    force_range: np.ndarray
    gain: np.ndarray
    bias: np.ndarray  # [act_size, 3]: constant, and factors of length and velocity
    gear: np.ndarray


@dataclass(frozen=True)
class Mechanism:
    """A model without its geoms."""

    links: Links
    dofs: Dofs
    actuators: Actuators
    init_q: np.ndarray
    gravity: np.ndarray
    timestep: float


def read(model: mujoco.MjModel) -> Mechanism:
    """Read a model, for which `unsupported` gives no reason."""
    return Mechanism(
        links=_links(model),
        dofs=_dofs(model),
        actuators=_actuators(model),
        init_q=rounded(rest_pose(model)),
        gravity=rounded(model.opt.gravity),
        timestep=float(np.float32(model.opt.timestep)),
    )


IGNORED_FLAGS = ("GRAVITY", "LIMIT", "ACTUATION", "CLAMPCTRL", "CONSTRAINT")
"""MuJoCo's switches of parts of its physics that our own engines do not know."""


def unsupported(model: mujoco.MjModel) -> Iterator[str]:
    """Reasons why a model would be read incorrectly."""
    option = model.opt
    has = {
        "equality constraints or tendons": model.neq or model.ntendon,
        "joint friction": np.any(model.dof_frictionloss),
        "bodies whose weight is borne (gravcomp)": np.any(model.body_gravcomp),
        "joints that limit the force of their actuators": np.any(model.jnt_actfrclimited),
        "actuators with internal state": model.na,
    }
    yield from (f"it has {what}" for what, there in has.items() if there)
    for flag in IGNORED_FLAGS:
        if option.disableflags & getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"):
            yield f"it disables {flag.lower()}"
    if option.integrator != 0 or option.cone != 0 or option.impratio != 1 or np.any(option.wind):
        yield "its integrator, friction cone, impratio or wind is not the default"
    if np.any(model.actuator_gaintype != 0):
        yield "an actuator's gain is not constant"
    if any(len(set(x)) > 1 for x in (model.geom_solmix, model.geom_priority)) or np.any(model.geom_fluid):
        yield "geoms differ in solmix or priority, or have fluid forces"
    for body in range(1, model.nbody):
        at = model.body_jntadr[body] + np.arange(model.body_jntnum[body])
        if len(at) and not np.all(model.jnt_pos[at] == model.jnt_pos[at[0]]):
            yield f"the joints of body {body} have different positions"
    rests = [at for at, kind in zip(model.jnt_qposadr, model.jnt_type, strict=True) if kind >= 2]
    if np.any(model.qpos0[rests]):
        yield "a joint's reference coordinate is not 0"


def _links(model: mujoco.MjModel) -> Links:
    bodies = range(1, model.nbody)
    free = np.array([_is_free(model, body) for body in bodies], bool)
    first = [model.body_jntadr[body] for body in bodies]
    return Links(
        types="".join("f" if f else str(model.body_jntnum[b]) for f, b in zip(free, bodies, strict=True)),
        parents=np.asarray(model.body_parentid[1:]) - 1,
        pos=np.where(free[:, None], 0.0, rounded(model.body_pos[1:])),
        rot=np.where(free[:, None], (1.0, 0.0, 0.0, 0.0), rounded(model.body_quat[1:])),
        joint=rounded(model.jnt_pos[first]),
        centre=rounded(model.body_ipos[1:]),
        principal=rounded(model.body_iquat[1:]),
        mass=rounded(model.body_mass[1:]),
        inertia=rounded(model.body_inertia[1:]),
    )


def _is_free(model: mujoco.MjModel, body: int) -> bool:
    start, count = model.body_jntadr[body], model.body_jntnum[body]
    return count == 1 and model.jnt_type[start] == mujoco.mjtJoint.mjJNT_FREE


def _dofs(model: mujoco.MjModel) -> Dofs:
    """Degrees of freedom in joint order: three slides and three hinges for a free joint, one for others."""
    none, bound = np.zeros((model.nv, 3)), np.full(model.nv, np.inf)
    dofs = Dofs(hinges=none, slides=none.copy(), low=-bound, high=bound)
    for joint, at in enumerate(model.jnt_dofadr):
        kind, axis = model.jnt_type[joint], rounded(model.jnt_axis[joint])
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            dofs.slides[at : at + 3] = dofs.hinges[at + 3 : at + 6] = np.eye(3)
            continue
        (dofs.hinges if kind == mujoco.mjtJoint.mjJNT_HINGE else dofs.slides)[at] = axis
        if model.jnt_limited[joint]:
            dofs.low[at], dofs.high[at] = rounded(model.jnt_range[joint])
    return dofs


def _actuators(model: mujoco.MjModel) -> Actuators:
    def within(limited: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        return np.where((limited == 1)[:, None], rounded(bounds), (-np.inf, np.inf))

    return Actuators(
        dof=model.jnt_dofadr[model.actuator_trnid[:, 0]],
        coordinate=model.jnt_qposadr[model.actuator_trnid[:, 0]],
        ctrl_range=within(model.actuator_ctrllimited, model.actuator_ctrlrange),
        force_range=within(model.actuator_forcelimited, model.actuator_forcerange),
        gain=rounded(model.actuator_gainprm[:, 0]),
        bias=np.where((model.actuator_biastype == 0)[:, None], 0.0, rounded(model.actuator_biasprm[:, :3])),
        gear=rounded(model.actuator_gear[:, 0]),
    )
