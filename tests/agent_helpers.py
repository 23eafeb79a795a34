"""Batches and small networks for tests of agents."""

import jax
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
        return rng.normal(size=(rows, dim)).astype(np.float32)

    goal = normal(3)
    discount, weight = np.ones(rows, np.float32), np.ones(rows, np.float32)
    discount[1], weight[2] = 0, 0
    made = Batch(
        obs=Obs(state=normal(4), goal=goal),
        action=np.tanh(normal(2)),
        next_obs=Obs(state=normal(4), goal=goal),
        reward=rng.integers(0, 2, rows).astype(np.float32),
        discount=discount,
        weight=weight,
        steps_to_termination=np.where(discount == 0, 1.0, np.inf).astype(np.float32),
    )
    return jax.device_put(made.replace(**changes))


def any_learner(agent, seed=0):
    """One of the structure that `agent.init` makes, which is not compiled: weights as large as its own."""
    rng = np.random.default_rng(seed)

    def leaf(path, x):
        names = [getattr(part, "name", getattr(part, "key", None)) for part in path]
        if "kernel" in names and "opt_state" not in names:
            return (rng.uniform(-1, 1, x.shape) / np.sqrt(x.shape[-2])).astype(x.dtype)
        norm = names[-1] == "scale" and "opt_state" not in names
        return np.full(x.shape, norm, x.dtype)

    return jax.tree_util.tree_map_with_path(leaf, jax.eval_shape(agent.init, jax.random.key(0)))
