"""Relabelling: other goals for stored rows, and the batches an agent learns from."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from homing import replay
from homing.replay import Ring, Rows, Timeline
from homing.types import Array, Batch, Key, Obs

GoalSampler = Callable[[Ring, Timeline, Rows, Key, float], Array]
RewardFn = Callable[[Array, Array], Array]


def geometric_offset(key: Key, remaining: Array, gamma: float) -> Array:
    """An offset k in 1..n for each n in `remaining` [...], P(k) ∝ γ^k: k = ⌈log(1 − u(1 − γ^n)) / log γ⌉."""
    uniform = jax.random.uniform(key, remaining.shape, jnp.float32)
    mass = -jnp.expm1(remaining.astype(jnp.float32) * math.log(gamma))
    offset = jnp.ceil(jnp.log1p(-uniform * mass) / math.log(gamma))
    # Rounding can reach 0 or, where γ^n vanishes, infinity: the clip comes before the cast.
    return jnp.clip(offset, 1, remaining.astype(jnp.float32)).astype(jnp.int32)


def future(ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float) -> Array:
    """What the episode achieved k steps on, k geometric up to its end; k = 1 is this action's result."""
    offset = geometric_offset(key, rows.remaining, gamma)
    return replay.read(ring.reached, line, rows.position + offset - 1, rows.lane)


def commanded(ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float) -> Array:
    """The goal the policy was given."""
    del key, gamma
    return replay.read(ring.goal, line, rows.position, rows.lane)


GOAL_SAMPLERS: dict[str, GoalSampler] = {"future": future, "commanded": commanded}


def batch(ring: Ring, line: Timeline, rows: Rows, goal: Array, reward: RewardFn) -> Batch:
    """The rows [B] with `goal` [B, goal_dim] in place of theirs; `reward(achieved, goal)` is asked anew."""

    def at(field: Array, position: Array) -> Array:
        return replay.read(field, line, position, rows.lane)

    follows = rows.remaining > 1
    discount = at(ring.discount, rows.position)
    return Batch(
        obs=Obs(state=at(ring.state, rows.position), goal=goal),
        action=at(ring.action, rows.position),
        next_obs=Obs(state=at(ring.state, rows.position + follows.astype(jnp.int32)), goal=goal),
        reward=reward(at(ring.reached, rows.position), goal).astype(jnp.float32),
        discount=discount,
        weight=(follows | (discount == 0)).astype(jnp.float32),
    )
