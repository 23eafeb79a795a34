"""Episodes: when they end, and ready starts for those that follow.

Starting an episode costs about a physics step, and every lane of every step may need one. So starts are
dealt in bulk: a pool of them is filled every `interval` steps, and an ended lane takes its next unused one.
Starts and goals are thus fresh in every episode. Should a lane use up its starts between two fillings (five
falls in 64 steps), it goes through them again until the pool is filled.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from homing.types import Array

STARTS_PER_ENV = 4
INTERVAL = 64


class Start(struct.PyTreeNode):
    """Ready starts, [P, ...]."""

    physics: Any
    state: Array  # [P, state_dim]
    goal: Array  # [P, goal_dim]


def pack(start: Start) -> Array:
    """Starts as one matrix [P, D]: an accelerator gathers rows of it in one go, not leaf by leaf."""
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(start)], axis=-1)


def unpack(rows: Array, like: Start) -> Start:
    """The starts in rows [N, D], with the structure of `like`."""
    leaves, tree = jax.tree.flatten(like)
    widths = [math.prod(leaf.shape[1:]) for leaf in leaves]
    parts = jnp.split(rows, np.cumsum(widths)[:-1], axis=-1)
    shaped = [p.reshape(len(rows), *leaf.shape[1:]) for p, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(tree, shaped)


def interval_for(episode_length: int) -> int:
    """Steps between two fillings: so few that time limits leave at least one start a lane for falls."""
    return max(1, min(INTERVAL, (STARTS_PER_ENV - 1) * episode_length))


def choose(ended: Array, pool: Array, used: Array) -> tuple[Array, Array]:
    """The start [N, D] that each lane would take next, and how many it has `used` [N] if it does so.

    Lanes have starts of their own, lane n the rows n, N + n, 2N + n, … of the pool [P, D]: to share them, a
    lane would have to know how many lanes before it have ended, a sum over lanes at every step.
    """
    lanes = len(used)
    index = (used % (len(pool) // lanes)) * lanes + jnp.arange(lanes, dtype=jnp.int32)
    return pool.at[index].get(mode="promise_in_bounds"), used + ended.astype(jnp.int32)


def where_envs(condition: Array, yes: Any, no: Any) -> Any:
    """Pick whole lanes from one of two pytrees [N, ...]."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, yes, no)
