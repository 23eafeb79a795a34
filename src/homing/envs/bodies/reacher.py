"""The two-link arm of Reacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp

from homing.envs.bodies.base import Dense, check_body, noisy
from homing.envs.bodies.geometry import point_on_link
from homing.envs.regions import Reachable, Region
from homing.physics import Engine, Model, State, Timing, robots
from homing.types import Array, Key

UPPER = 0.1  # length of the first link
TIP = (0.11, 0.0, 0.0)  # position of the fingertip in the frame of the second link


@dataclass(frozen=True)
class Reacher:
    """The benchmark's reacher without its target."""

    name: str = "reacher"
    root: str = "body0"
    healthy: tuple[str, float, float] | None = None
    dense: Dense = Dense(distance=1.0)

    def __post_init__(self) -> None:
        check_body(self)

    @property
    def regions(self) -> tuple[Region, ...]:
        return (Reachable(("tip_x", "tip_y", "tip_z"), (0.0, 0.0), UPPER + TIP[0]),)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return {
            "spring": Timing(0.005, 4, gears=(25.0, 25.0)),
            "generalized": Timing(0.01, 2),
            "mjx": Timing(0.01, 2),
        }

    def build(self) -> Model:
        return robots.reacher()

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        return noisy(key, rest_q, qd_size, 0.1, 0.005, "uniform")

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        names = ["cos_joint0", "cos_joint1", "sin_joint0", "sin_joint1"]
        return names + [f"tip_{s}" for s in ("x", "y", "z", "vx", "vy", "vz")], ()

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        angles = engine.q(state)[:, :2]
        tip, velocity = point_on_link(engine, state, "body1", TIP)
        parts = [jnp.cos(angles), jnp.sin(angles), tip, velocity]
        return jnp.concatenate(parts, axis=-1), angles[:, :0]

    def control(self, engine: Engine, action: Array) -> Array:
        return action
