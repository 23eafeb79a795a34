"""A custom robot and task: a cart that moves to a goal position with a goal velocity."""

import dataclasses

import jax
import jax.numpy as jnp

import homing
from homing.envs.bodies import Dense
from homing.envs.goals import Box
from homing.envs.tasks import Reach
from homing.physics import Model, Timing

CART = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="10 10 1" contype="0" conaffinity="0"/>
    <body name="cart" pos="0 0 0.2">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.5"/>
      <geom name="box" type="box" size="0.3 0.2 0.1" mass="1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="4" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


@dataclasses.dataclass(frozen=True)
class Cart:
    name: str = "cart"
    root: str = "cart"
    healthy: tuple[str, float, float] | None = ("place", -8.0, 8.0)  # leaving the rails terminates an episode
    dense: Dense = Dense(distance=1.0)

    @property
    def pipelines(self):
        return {"mjx": Timing(timestep=0.01, frames=4), "generalized": Timing(timestep=0.01, frames=4)}

    def build(self):
        return Model.from_xml(CART)

    def start(self, key, rest_q, qd_size):
        return jax.random.uniform(key, rest_q.shape, jnp.float32, -1.0, 1.0), jnp.zeros(qd_size)

    def columns(self, engine):
        return ("place", "speed"), ()

    def observe(self, engine, state, ctrl):
        both = jnp.concatenate([engine.q(state), engine.qd(state)], axis=-1)
        return both, both[:, :0]

    def control(self, engine, action):
        return action


homing.register("cart", Cart(), Reach(("place", "speed"), Box((-3.0, -0.5), (3.0, 0.5)), within=0.2))
env = homing.make("cart", num_envs=8)
state = jax.jit(env.reset)(jax.random.key(1))
step = jax.jit(env.step)
for _ in range(200):
    error = state.obs.goal - state.obs.state
    state = step(state, jnp.clip(2.0 * error[:, :1] + 1.5 * error[:, 1:], -1.0, 1.0))
print(
    "fraction of carts at their goal position:",
    float(jnp.mean(jnp.abs(state.obs.state - state.obs.goal)[:, 0] < 0.5)),
)
