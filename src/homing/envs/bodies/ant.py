"""The four-legged ant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.bodies.base import (
    QUICK_NEWTON,
    Dense,
    check_body,
    free_names,
    free_velocity_names,
    joint_names,
    noisy,
    turned,
    unit_quaternion,
    velocities,
)
from homing.errors import ConfigError, shown, unknown
from homing.physics import Engine, Model, State, Timing, robots
from homing.types import Array, Key
from homing.values import checked

PARTS = {
    "torso": ("torso_geom",),
    "hips": ("aux_1_geom", "aux_2_geom", "aux_3_geom", "aux_4_geom"),
    "feet": ("left_foot_geom", "right_foot_geom", "third_foot_geom", "fourth_foot_geom"),
}


def _check_parts(name: str, parts: Any) -> None:
    if not isinstance(parts, (tuple, list)):
        raise ConfigError(f"{name} is a tuple of parts of the ant, such as ('torso',), not {shown(parts)}")
    for part in parts:
        if not isinstance(part, str) or part not in PARTS:
            raise unknown(f"part of the ant in {name}:", part, PARTS)


def _check_impedance(solimp: Any) -> None:
    if solimp is None:
        return
    if not isinstance(solimp, (tuple, list)) or len(solimp) != 3:
        raise ConfigError(
            f"solimp is three numbers, such as (0.9, 0.95, 0.001), or None; not {shown(solimp)}"
        )
    for value in solimp:
        checked("each number of solimp", value, float, bounds.LENGTH)


@dataclass(frozen=True)
class Ant:
    """The ant of the benchmark: its model is `homing.physics.robots.ant`.

    touched:     parts with contact affinity ("torso", "hips", "feet"); the feet always collide with the floor
    touching:    parts besides the feet that collide with geoms of contact affinity
    density:     of every part; None keeps that of the model
    solimp:      contact impedance of every geom, for the mjx pipeline
    rest_height: initial height of the torso
    any_heading: start with a uniformly random heading
    solver:      mjx solver settings
    contacts:    maximum number of simultaneous contacts in mjx
    """

    touched: tuple[str, ...] = ()
    touching: tuple[str, ...] = ()
    density: float | None = None
    solimp: tuple[float, float, float] | None = None
    rest_height: float = 0.55
    any_heading: bool = False
    solver: tuple[tuple[str, int], ...] = QUICK_NEWTON
    contacts: int | None = None

    name: str = "ant"
    root: str = "torso"
    healthy: tuple[str, float, float] | None = ("torso_z", 0.2, 1.0)
    dense: Dense = Dense(progress=10.0, alive=1.0, control=0.5)

    def __post_init__(self) -> None:
        check_body(self)
        _check_parts("touched", self.touched)
        _check_parts("touching", self.touching)
        _check_impedance(self.solimp)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return {
            "spring": Timing(0.005, 10),
            "generalized": Timing(0.01, 5),
            "mjx": Timing(0.01, 5, options=self.solver, contacts=self.contacts),
        }

    def build(self) -> Model:
        model = robots.ant()
        for part in self.touched:
            model.set_contact(PARTS[part], conaffinity=1)
        for part in self.touching:
            model.set_contact(PARTS[part], contype=1)
        model.set_material(density=self.density, solimp=self.solimp)
        return model

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        rest_q = rest_q.at[2].set(self.rest_height)
        if not self.any_heading:
            q, qd = noisy(key, rest_q, qd_size, 0.1, 0.1, "normal")
            return unit_quaternion(q), qd
        k_noise, k_heading = jax.random.split(key)
        q, qd = noisy(k_noise, rest_q, qd_size, 0.1, 0.1, "normal")
        return turned(k_heading, unit_quaternion(q)), qd

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        joints = joint_names(engine)[:8]
        names = free_names("torso") + joints + free_velocity_names("torso") + velocities(joints)
        return names, ()

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        q, qd = engine.q(state)[:, :15], engine.qd(state)[:, :14]
        return jnp.concatenate([q, qd], axis=-1), q[:, :0]

    def control(self, engine: Engine, action: Array) -> Array:
        return action
