"""A compiled model as the spring engine needs it: plain arrays, rounded to float32 as brax keeps them.

brax reads a model by some sixty little programs of JAX; here NumPy does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

# What brax reads from a file's <custom> block, and what it takes where there is none.
ONE = {"vel_damping": 0.0, "ang_damping": 0.0, "baumgarte_erp": 0.1}
ONE |= {"spring_mass_scale": 0.0, "spring_inertia_scale": 0.0}
EACH_LINK = {
    "constraint_stiffness": 2000.0,
    "constraint_limit_stiffness": 1000.0,
    "constraint_vel_damping": 0.0,
    "constraint_ang_damping": 0.0,
}
ELASTICITY = "elasticity"


@dataclass(frozen=True)
class Links:
    """The moving bodies, [L, ...]; quaternions have the scalar first."""

    types: str  # by link: f for one that moves freely, else the number of its joints
    parents: np.ndarray  # −1 is the world
    pos: np.ndarray  # in the parent; a free link's is in its coordinates instead
    rot: np.ndarray
    joint: np.ndarray  # where its joints are, in the link
    centre: np.ndarray  # of mass, in the link
    principal: np.ndarray  # axes of inertia
    mass: np.ndarray
    inertia: np.ndarray  # [L, 3] about the principal axes
    stiffness: np.ndarray
    limit_stiffness: np.ndarray
    vel_damping: np.ndarray
    ang_damping: np.ndarray


@dataclass(frozen=True)
class Dofs:
    """Degrees of freedom, [qd_size, ...]."""

    turning: np.ndarray  # axes, zero for one that slides
    sliding: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Drives:
    """Motors, [act_size, ...]."""

    dof: np.ndarray
    ctrl_range: np.ndarray
    force_range: np.ndarray
    gain: np.ndarray
    gear: np.ndarray


@dataclass(frozen=True)
class Mechanism:
    """All of a model but its geoms; `custom` holds the numbers of ONE."""

    links: Links
    dofs: Dofs
    drives: Drives
    init_q: np.ndarray
    gravity: np.ndarray
    timestep: float
    custom: dict[str, float]
    elasticity: np.ndarray  # of each geom


def read(model: mujoco.MjModel) -> Mechanism:
    """See `unsupported` for what cannot be read."""
    numbers = _numbers(model)
    init_q = numbers.get("init_qpos", model.qpos0)
    return Mechanism(
        links=_links(model, numbers),
        dofs=_dofs(model),
        drives=_drives(model),
        init_q=_rounded(init_q),
        gravity=_rounded(model.opt.gravity),
        timestep=float(np.float32(model.opt.timestep)),
        custom={name: float(_rounded(numbers.get(name, usual)).item()) for name, usual in ONE.items()},
        elasticity=_spread(numbers.get(ELASTICITY, 0.0), model.ngeom),
    )


def unsupported(model: mujoco.MjModel) -> Iterator[str]:
    """What of a model would be read wrongly."""
    if model.ntuple:
        yield "it sets numbers by custom tuples"
    yield from _unusual(model)
    numbers = _numbers(model)
    sizes = dict.fromkeys(EACH_LINK, model.nbody - 1) | {ELASTICITY: model.ngeom} | dict.fromkeys(ONE, 1)
    for name, size in sizes.items():
        if name in numbers and numbers[name].size not in (1, size):
            yield f"custom number {name} has {numbers[name].size} values, not 1 or {size}"


def _unusual(model: mujoco.MjModel) -> Iterator[str]:
    """What brax refuses; it will say so itself."""
    option = model.opt
    if option.integrator != 0 or option.cone != 0 or option.impratio != 1 or np.any(option.wind):
        yield "its integrator, friction cone, impratio or wind is not the usual one"
    if np.any(model.actuator_gaintype != 0):
        yield "a motor's gain is not constant"
    if any(len(set(x)) > 1 for x in (model.geom_solmix, model.geom_priority)) or np.any(model.geom_fluid):
        yield "geoms differ in solmix or priority, or float"
    for body in range(1, model.nbody):
        at = model.body_jntadr[body] + np.arange(model.body_jntnum[body])
        if len(at) and not np.all(model.jnt_pos[at] == model.jnt_pos[at[0]]):
            yield f"the joints of body {body} lie apart"
    rests = [at for at, kind in zip(model.jnt_qposadr, model.jnt_type, strict=True) if kind >= 2]
    if np.any(model.qpos0[rests]):
        yield "a joint's coordinate is not 0 where it rests"


def _rounded(x: object) -> np.ndarray:
    return np.asarray(x, np.float32).astype(float)


def _spread(x: object, size: int) -> np.ndarray:
    return np.broadcast_to(_rounded(x), (size,)).copy()


def _numbers(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """The <custom> numbers by name."""
    found = [model.numeric(i) for i in range(model.nnumeric)]
    return {number.name: np.asarray(number.data) for number in found}


def _links(model: mujoco.MjModel, numbers: dict[str, np.ndarray]) -> Links:
    bodies = range(1, model.nbody)
    free = np.array([_is_free(model, body) for body in bodies], bool)
    first = [model.body_jntadr[body] for body in bodies]
    custom = {name: _spread(numbers.get(name, usual), len(free)) for name, usual in EACH_LINK.items()}
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
    """Joints in their order: three slides and three turns of a free one, one dof of each other."""
    none, bound = np.zeros((model.nv, 3)), np.full(model.nv, np.inf)
    dofs = Dofs(turning=none, sliding=none.copy(), low=-bound, high=bound)
    for joint, at in enumerate(model.jnt_dofadr):
        kind, axis = model.jnt_type[joint], _rounded(model.jnt_axis[joint])
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            dofs.sliding[at : at + 3] = dofs.turning[at + 3 : at + 6] = np.eye(3)
            continue
        (dofs.turning if kind == mujoco.mjtJoint.mjJNT_HINGE else dofs.sliding)[at] = axis
        if model.jnt_limited[joint]:
            dofs.low[at], dofs.high[at] = _rounded(model.jnt_range[joint])
    return dofs


def _drives(model: mujoco.MjModel) -> Drives:
    def within(limited: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        return np.where((limited == 1)[:, None], _rounded(bounds), (-np.inf, np.inf))

    return Drives(
        dof=model.jnt_dofadr[model.actuator_trnid[:, 0]],
        ctrl_range=within(model.actuator_ctrllimited, model.actuator_ctrlrange),
        force_range=within(model.actuator_forcelimited, model.actuator_forcerange),
        gain=_rounded(model.actuator_gainprm[:, 0]),
        gear=_rounded(model.actuator_gear[:, 0]),
    )
