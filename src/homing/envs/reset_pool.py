"""The reset pool: pre-sampled initial states for auto-reset.

A reset costs about as much as a physics step, and any environment may need one at any step. Resets are
therefore sampled in bulk: the pool is refilled every `interval` steps, and an environment whose episode has
ended takes its next unused reset. Initial states and goals are fresh in every episode, unless an environment
exhausts its resets between two refills (five terminations in 64 steps): then it reuses them.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from homing.physics import State
from homing.types import Array

STARTS_PER_ENV = 4
INTERVAL = 64


class Start(struct.PyTreeNode):
    """Initial states with their goals, [P, ...]."""

    physics: State
    state: Array  # [P, state_dim]
    goal: Array  # [P, goal_dim]


def pack(start: Start) -> Array:
    """Resets as one matrix [P, D], so that one gather serves all leaves."""
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(start)], axis=-1)


def unpack(rows: Array, like: Start) -> Start:
    """Inverse of `pack` for rows [N, D], with the structure of `like`."""
    leaves, tree = jax.tree.flatten(like)
    widths = [math.prod(leaf.shape[1:]) for leaf in leaves]
    parts = jnp.split(rows, np.cumsum(widths)[:-1], axis=-1)
    shaped = [p.reshape(len(rows), *leaf.shape[1:]) for p, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(tree, shaped)


def interval_for(episode_length: int) -> int:
    """Steps between two refills, such that time limits leave at least one reset for a termination."""
    return max(1, min(INTERVAL, (STARTS_PER_ENV - 1) * episode_length))


def choose(ended: Array, pool: Array, used: Array) -> tuple[Array, Array]:
    """Each environment's next reset [N, D], and the updated count of resets `used` [N].

    Environment n owns rows n, N + n, 2N + n, … of the pool [P, D]. A shared pool would need a prefix sum
    over environments at every step.
    """
    num_envs = len(used)
    index = (used % (len(pool) // num_envs)) * num_envs + jnp.arange(num_envs, dtype=jnp.int32)
    return pool.at[index].get(mode="promise_in_bounds"), used + ended.astype(jnp.int32)


def where_envs(condition: Array, yes: Any, no: Any) -> Any:
    """`jnp.where` over environments for pytrees [N, ...]; `condition` is [N]."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, yes, no)
