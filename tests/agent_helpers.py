"""Batches and small networks for tests of agents."""

import jax.numpy as jnp
import numpy as np
from probes import ProbeSpec

from homing.networks import NetConfig
from homing.types import Batch, Obs

SPEC = ProbeSpec(state_dim=4, action_dim=2, goal_dim=3, goal_indices=(0, 1, 2), threshold=0.1)
SMALL = NetConfig(width=8, activation="relu")
NETS = {"critic_net": SMALL, "actor_net": SMALL}


def some_batch(rows=6, seed=0, **changes):
    """Random rows; the second has fallen, the third was cut off by the time limit."""
    rng = np.random.default_rng(seed)

    def normal(dim):
        return jnp.asarray(rng.normal(size=(rows, dim)), jnp.float32)

    goal = normal(3)
    discount, weight = np.ones(rows, np.float32), np.ones(rows, np.float32)
    discount[1], weight[2] = 0, 0
    made = Batch(
        obs=Obs(state=normal(4), goal=goal),
        action=jnp.tanh(normal(2)),
        next_obs=Obs(state=normal(4), goal=goal),
        reward=jnp.asarray(rng.integers(0, 2, rows), jnp.float32),
        discount=jnp.asarray(discount),
        weight=jnp.asarray(weight),
        steps_to_termination=jnp.where(jnp.asarray(discount) == 0, 1.0, jnp.inf),
    )
    return made.replace(**changes)
