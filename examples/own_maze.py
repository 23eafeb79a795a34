"""A custom maze: draw it as text, register it, use it like any other environment."""

import jax
import jax.numpy as jnp

import homing
from homing.envs.arenas import Maze
from homing.envs.bodies import Point
from homing.envs.goals import Cells
from homing.envs.tasks import Reach

ROOMS = """
    #########
    #R..#..G#
    #...#...#
    #.......#
    #...#..G#
    #########
"""

homing.register(
    "two_rooms",
    body=Point(),
    task=Reach(goal=("x", "y"), goals=Cells("G"), starts=Cells("R"), within=0.5),
    arena=Maze(ROOMS, cell=3.0),
)

env = homing.make("two_rooms", num_envs=4, episode_length=100)
state = jax.jit(env.reset)(jax.random.key(0))
step = jax.jit(env.step)
for _ in range(20):
    towards = state.obs.goal - state.obs.state[:, :2]
    state = step(state, jnp.clip(towards, -1.0, 1.0))
print("distance to the goals:", state.metrics["distance"])
assert float(state.metrics["distance"].max()) < 19.0
