"""The seven-joint arm of Pusher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from homing.envs.bodies.base import Dense, velocities
from homing.envs.bodies.geometry import point_on_link
from homing.physics import Model, Timing

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
    """brax's pusher arm, without puck and goal: a task brings its own pucks.

    velocities_last: joint velocities come after the task's objects (else right after the angles)
    """

    velocities_last: bool = True

    name: str = "pusher"
    root: str = "r_shoulder_pan_link"
    healthy: tuple[str, float, float] | None = None

    @property
    def dense(self) -> Dense:
        # An arm without a puck has nothing to come near to.
        return Dense(distance=1.0, control=0.1, near=0.5) if self.velocities_last else Dense(distance=1.0)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return {
            "generalized": Timing(0.01, 5),
            "spring": Timing(0.001, 50, gears=(20.0,) * 7),
            "mjx": Timing(0.01, 5),
        }

    def build(self) -> Model:
        return Model.from_brax("pusher.xml", without=("object", "goal"))

    def start(self, key, rest_q, qd_size):
        return rest_q, jax.random.uniform(key, (qd_size,), jnp.float32, -0.005, 0.005)

    def columns(self, engine):
        speeds = velocities(JOINTS)
        if self.velocities_last:
            return (*JOINTS, *WRIST), tuple(speeds)
        return (*JOINTS, *speeds, *WRIST), ()

    def observe(self, engine, state, ctrl):
        q, qd = engine.q(state)[:, :7], engine.qd(state)[:, :7]
        wrist, _ = point_on_link(engine, state, "r_wrist_flex_link", (0.0, 0.0, 0.0))
        if self.velocities_last:
            return jnp.concatenate([q, wrist], axis=-1), qd
        return jnp.concatenate([q, qd, wrist], axis=-1), qd[:, :0]

    def control(self, engine, action):
        return action
