"""A compiled model as NumPy arrays for the spring engine, rounded to float32 as in brax.

brax reads a model with about sixty small JAX programs; NumPy needs no compilation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

# Custom numerics that brax reads, with its defaults: one value each, or one for each link.
SCALARS = {"vel_damping": 0.0, "ang_damping": 0.0, "baumgarte_erp": 0.1}
SCALARS |= {"spring_mass_scale": 0.0, "spring_inertia_scale": 0.0}
PER_LINK = {
    "constraint_stiffness": 2000.0,
    "constraint_limit_stiffness": 1000.0,
    "constraint_vel_damping": 0.0,
    "constraint_ang_damping": 0.0,
}
ELASTICITY = "elasticity"


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
    stiffness: np.ndarray
    limit_stiffness: np.ndarray
    vel_damping: np.ndarray
    ang_damping: np.ndarray


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
    ctrl_range: np.ndarray
    force_range: np.ndarray
    gain: np.ndarray
    gear: np.ndarray


@dataclass(frozen=True)
class Mechanism:
    """A model without its geoms; `custom` holds the values of `SCALARS`."""

    links: Links
    dofs: Dofs
    actuators: Actuators
    init_q: np.ndarray
    gravity: np.ndarray
    timestep: float
    custom: dict[str, float]
    elasticity: np.ndarray  # of each geom


def read(model: mujoco.MjModel) -> Mechanism:
    """Read a model, for which `unsupported` gives no reason."""
    numbers = _numbers(model)
    init_q = numbers.get("init_qpos", model.qpos0)
    return Mechanism(
        links=_links(model, numbers),
        dofs=_dofs(model),
        actuators=_actuators(model),
        init_q=_rounded(init_q),
        gravity=_rounded(model.opt.gravity),
        timestep=float(np.float32(model.opt.timestep)),
        custom={
            name: float(_rounded(numbers.get(name, default)).item()) for name, default in SCALARS.items()
        },
        elasticity=_spread(numbers.get(ELASTICITY, 0.0), model.ngeom),
    )


def unsupported(model: mujoco.MjModel) -> Iterator[str]:
    """Reasons why a model would be read incorrectly."""
    if model.ntuple:
        yield "it has custom tuples"
    yield from _unusual(model)
    numbers = _numbers(model)
    sizes = dict.fromkeys(PER_LINK, model.nbody - 1) | {ELASTICITY: model.ngeom} | dict.fromkeys(SCALARS, 1)
    for name, size in sizes.items():
        if name in numbers and numbers[name].size not in (1, size):
            yield f"custom number {name} has {numbers[name].size} values, not 1 or {size}"


def _unusual(model: mujoco.MjModel) -> Iterator[str]:
    """What brax rejects with an error of its own."""
    option = model.opt
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


def _rounded(x: object) -> np.ndarray:
    return np.asarray(x, np.float32).astype(float)


def _spread(x: object, size: int) -> np.ndarray:
    return np.broadcast_to(_rounded(x), (size,)).copy()


def _numbers(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Custom numerics by name."""
    found = [model.numeric(i) for i in range(model.nnumeric)]
    return {number.name: np.asarray(number.data) for number in found}


def _links(model: mujoco.MjModel, numbers: dict[str, np.ndarray]) -> Links:
    bodies = range(1, model.nbody)
    free = np.array([_is_free(model, body) for body in bodies], bool)
    first = [model.body_jntadr[body] for body in bodies]
    custom = {name: _spread(numbers.get(name, default), len(free)) for name, default in PER_LINK.items()}
    return Links(
        types="".join("f" if f else str(model.body_jntnum[b]) for f, b in zip(free, bodies, strict=True)),
        parents=np.asarray(model.body_parentid[1:]) - 1,
        pos=np.where(free[:, None], 0.0, _rounded(model.body_pos[1:])),
        rot=np.where(free[:, None], (1.0, 0.0, 0.0, 0.0), _rounded(model.body_quat[1:])),
        joint=_rounded(model.jnt_pos[first]),
        centre=_rounded(model.body_ipos[1:]),
        principal=_rounded(model.body_iquat[1:]),
        mass=_rounded(model.body_mass[1:]),
        inertia=_rounded(model.body_inertia[1:]),
        stiffness=custom["constraint_stiffness"],
        limit_stiffness=custom["constraint_limit_stiffness"],
        vel_damping=custom["constraint_vel_damping"],
        ang_damping=custom["constraint_ang_damping"],
    )


def _is_free(model: mujoco.MjModel, body: int) -> bool:
    start, count = model.body_jntadr[body], model.body_jntnum[body]
    return count == 1 and model.jnt_type[start] == mujoco.mjtJoint.mjJNT_FREE


def _dofs(model: mujoco.MjModel) -> Dofs:
    """Degrees of freedom in joint order: three slides and three hinges for a free joint, one for others."""
    none, bound = np.zeros((model.nv, 3)), np.full(model.nv, np.inf)
    dofs = Dofs(hinges=none, slides=none.copy(), low=-bound, high=bound)
    for joint, at in enumerate(model.jnt_dofadr):
        kind, axis = model.jnt_type[joint], _rounded(model.jnt_axis[joint])
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            dofs.slides[at : at + 3] = dofs.hinges[at + 3 : at + 6] = np.eye(3)
            continue
        (dofs.hinges if kind == mujoco.mjtJoint.mjJNT_HINGE else dofs.slides)[at] = axis
        if model.jnt_limited[joint]:
            dofs.low[at], dofs.high[at] = _rounded(model.jnt_range[joint])
    return dofs


def _actuators(model: mujoco.MjModel) -> Actuators:
    def within(limited: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        return np.where((limited == 1)[:, None], _rounded(bounds), (-np.inf, np.inf))

    return Actuators(
        dof=model.jnt_dofadr[model.actuator_trnid[:, 0]],
        ctrl_range=within(model.actuator_ctrllimited, model.actuator_ctrlrange),
        force_range=within(model.actuator_forcelimited, model.actuator_forcerange),
        gain=_rounded(model.actuator_gainprm[:, 0]),
        gear=_rounded(model.actuator_gear[:, 0]),
    )
