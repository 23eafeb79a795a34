"""The seven-joint arm of Pusher."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from homing.envs.bodies.base import Dense, check_body, velocities
from homing.envs.bodies.geometry import point_on_link
from homing.envs.regions import Reachable, Region
from homing.physics import Engine, Model, State, Timing, robots
from homing.types import Array, Key

JOINTS = (
    "shoulder_pan",
    "shoulder_lift",
    "upper_arm_roll",
    "elbow_flex",
    "forearm_roll",
    "wrist_flex",
    "wrist_roll",
)
WRIST = ("wrist_x", "wrist_y", "wrist_z")


@dataclass(frozen=True)
class PusherArm:
    """The benchmark's pusher arm without puck and goal; the task adds its own pucks.

    velocities_last: order the state as angles, objects, joint velocities instead of angles, velocities, objects
    """

    velocities_last: bool = True

    name: str = "pusher"
    root: str = "r_shoulder_pan_link"
    healthy: tuple[str, float, float] | None = None

    def __post_init__(self) -> None:
        check_body(self)

    @property
    def dense(self) -> Dense:
        # Without a puck there is no hand-to-object term.
        return Dense(distance=1.0, control=0.1, near=0.5) if self.velocities_last else Dense(distance=1.0)

    @property
    def regions(self) -> tuple[Region, ...]:
        # Shoulder offset, then upper arm and forearm stretched down to the table, 0.323 below the shoulder.
        return (Reachable(WRIST, (0.0, -0.6), 0.1 + math.sqrt((0.4 + 0.321) ** 2 - 0.323**2)),)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return {
            "generalized": Timing(0.01, 5),
            "spring": Timing(0.001, 50, gears=(20.0,) * 7),
            "mjx": Timing(0.01, 5),
        }

    def build(self) -> Model:
        return robots.pusher()

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        return rest_q, jax.random.uniform(key, (qd_size,), jnp.float32, -0.005, 0.005)

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        speeds = velocities(JOINTS)
        if self.velocities_last:
            return (*JOINTS, *WRIST), tuple(speeds)
        return (*JOINTS, *speeds, *WRIST), ()

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        q, qd = engine.q(state)[:, :7], engine.qd(state)[:, :7]
        wrist, _ = point_on_link(engine, state, "r_wrist_flex_link", (0.0, 0.0, 0.0))
        if self.velocities_last:
            return jnp.concatenate([q, wrist], axis=-1), qd
        return jnp.concatenate([q, qd, wrist], axis=-1), qd[:, :0]

    def control(self, engine: Engine, action: Array) -> Array:
        return action
