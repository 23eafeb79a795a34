"""The planar half-cheetah."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp

from homing.envs.bodies.base import Dense, check_body, noisy, velocities
from homing.physics import Engine, Model, State, Timing, robots
from homing.types import Array, Key

COORDINATES = ("root_x", "root_z", "root_pitch", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")


@dataclass(frozen=True)
class HalfCheetah:
    """The benchmark's half-cheetah; no target body takes a part of its mass."""

    name: str = "half_cheetah"
    root: str = "torso"
    healthy: tuple[str, float, float] | None = None
    dense: Dense = Dense(distance=1.0, control=0.1)

    def __post_init__(self) -> None:
        check_body(self)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return {
            "mjx": Timing(0.01, 5),
            "generalized": Timing(0.01, 5),
            "spring": Timing(0.003125, 16, gears=(120.0, 90.0, 60.0, 120.0, 100.0, 100.0)),
        }

    def build(self) -> Model:
        return robots.half_cheetah()

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        return noisy(key, rest_q, qd_size, 0.1, 0.1, "normal")

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        return (*COORDINATES, *velocities(COORDINATES)), ()

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        q, qd = engine.q(state), engine.qd(state)
        return jnp.concatenate([q, qd], axis=-1), q[:, :0]

    def control(self, engine: Engine, action: Array) -> Array:
        return action
