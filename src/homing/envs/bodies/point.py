"""A point mass in the plane: the smallest robot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from homing.envs.bodies.base import Dense, check_body
from homing.physics import Engine, Model, State, Timing
from homing.types import Array, Key

POINT = """
<mujoco model="point">
  <option timestep="0.01" iterations="4"/>
  <custom>
    <numeric name="constraint_limit_stiffness" data="1000"/>
    <numeric name="constraint_stiffness" data="4000"/>
    <numeric name="constraint_ang_damping" data="10"/>
    <numeric name="constraint_vel_damping" data="20"/>
    <numeric name="spring_mass_scale" data="1"/>
    <numeric name="spring_inertia_scale" data="1"/>
  </custom>
  <worldbody>
    <geom name="floor" type="plane" size="40 40 1" conaffinity="1" contype="0" friction="1 0.5 0.5"/>
    <body name="torso" pos="0 0 0.75">
      <joint name="x" type="slide" axis="1 0 0" range="-100 100" limited="true" armature="1"/>
      <joint name="y" type="slide" axis="0 1 0" range="-100 100" limited="true" armature="1"/>
      <geom name="torso_geom" type="sphere" size="0.25" density="5" friction="1 0.5 0.5"
            contype="1" conaffinity="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="x" gear="5"/>
    <motor joint="y" gear="5"/>
  </actuator>
</mujoco>
"""


@dataclass(frozen=True)
class Point:
    """A sphere on two slide joints, actuated along x and y."""

    name: str = "point"
    root: str = "torso"
    healthy: tuple[str, float, float] | None = None
    dense: Dense = Dense(distance=1.0, alive=1.0, control=0.5)

    def __post_init__(self) -> None:
        check_body(self)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return {"spring": Timing(0.005, 10), "generalized": Timing(0.01, 5), "mjx": Timing(0.01, 5)}

    def build(self) -> Model:
        return Model.from_xml(POINT)

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        return rest_q, 0.1 * jax.random.normal(key, (qd_size,), jnp.float32)

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        return ("x", "y", "vx", "vy"), ()

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        q, qd = engine.q(state)[:, :2], engine.qd(state)[:, :2]
        return jnp.concatenate([q, qd], axis=-1), q[:, :0]

    def control(self, engine: Engine, action: Array) -> Array:
        return action
