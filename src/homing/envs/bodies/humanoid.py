"""The humanoid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import jax.numpy as jnp

from homing.envs.bodies.base import (
    Dense,
    check_body,
    free_names,
    free_velocity_names,
    joint_names,
    turned,
    velocities,
)
from homing.physics import Engine, Model, State, Timing, robots
from homing.types import Array, Key

INERTIA = [f"i{a}{b}" for a in "xyz" for b in "xyz"] + ["mass"]
MOTION = ["vx", "vy", "vz", "wx", "wy", "wz"]
SPRING_GEARS = (350.0,) * 11 + (100.0,) * 6


@dataclass(frozen=True)
class Humanoid:
    """The benchmark's humanoid; every part collides with the floor.

    any_heading: start with a uniformly random heading
    """

    any_heading: bool = False

    name: str = "humanoid"
    root: str = "torso"
    healthy: tuple[str, float, float] | None = ("torso_z", 1.0, 2.0)
    dense: Dense = Dense(distance=1.0, alive=5.0, control=0.1)

    def __post_init__(self) -> None:
        check_body(self)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return {
            "spring": Timing(0.0015, 10, gears=SPRING_GEARS),
            "generalized": Timing(0.003, 5),
        }

    def build(self) -> Model:
        model = robots.humanoid()
        model.set_contact((g.name for g in model.spec.geoms), contype=1)
        return model

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        return turned(key, rest_q) if self.any_heading else rest_q, jnp.zeros((qd_size,), jnp.float32)

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        joints = joint_names(engine)
        links = engine.layout.links
        names = free_names("torso") + joints + free_velocity_names("torso") + velocities(joints)
        names += [f"{link}_{entry}" for link in links for entry in INERTIA]
        names += [f"{link}_com_{entry}" for link in links for entry in MOTION]
        names += [f"root_torque_{entry}" for entry in MOTION] + [f"{joint}_torque" for joint in joints]
        return names, ()

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        inertia, motion = engine.mass_features(state)
        num_envs = inertia.shape[0]
        parts = [
            engine.q(state),
            engine.qd(state),
            inertia.reshape(num_envs, -1),
            motion.reshape(num_envs, -1),
            engine.torques(state, ctrl),
        ]
        return jnp.concatenate(parts, axis=-1), jnp.zeros((num_envs, 0), jnp.float32)

    def control(self, engine: Engine, action: Array) -> Array:
        low, high = engine.layout.ctrl_range[:, 0], engine.layout.ctrl_range[:, 1]
        return cast(Array, low + 0.5 * (action + 1.0) * (high - low))
