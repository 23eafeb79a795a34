"""Relabelling: other goals for stored rows, and the batches an agent learns from."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from homing.data import replay
from homing.data.replay import Ring, Rows, Timeline
from homing.types import Array, Batch, Key, Obs, is_just

GoalSampler = Callable[[Ring, Timeline, Rows, Key, float], Array]
RewardFn = Callable[[Array, Array], Array]
ShapingFn = Callable[[Array, Array, Array], Array]


def geometric_offset(key: Key, remaining: Array, gamma: float) -> Array:
    """An offset k in 1..n for each n in `remaining` [...], P(k) ∝ γ^k: k = ⌈log(1 − u(1 − γ^n)) / log γ⌉."""
    uniform = jax.random.uniform(key, remaining.shape, jnp.float32)
    # In a population γ is traced.
    log_gamma = math.log(gamma) if isinstance(gamma, float) else jnp.log(gamma)
    mass = -jnp.expm1(remaining.astype(jnp.float32) * log_gamma)
    offset = jnp.ceil(jnp.log1p(-uniform * mass) / log_gamma)
    # Rounding can reach 0 or, where γ^n vanishes, infinity: the clip comes before the cast.
    return jnp.clip(offset, 1, remaining.astype(jnp.float32)).astype(jnp.int32)


def future(ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float) -> Array:
    """What the episode achieved k steps on, k geometric up to its end; k = 1 is this action's result."""
    offset = geometric_offset(key, rows.remaining, gamma)
    return replay.read(ring.reached, line, rows.position + offset - 1, rows.lane)


def uniform_future(ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float) -> Array:
    """What the episode achieved at any step from this one on, each alike; a running one so far."""
    del gamma
    offset = jax.random.randint(key, rows.remaining.shape, 0, rows.remaining, jnp.int32)
    return replay.read(ring.reached, line, rows.position + offset, rows.lane)


def episode(ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float) -> Array:
    """What the episode achieved at any of its stored steps, earlier ones too."""
    del gamma
    first = episode_start(ring, line, rows)
    after = rows.position + rows.remaining
    position = jax.random.randint(key, rows.position.shape, first, after, jnp.int32)
    return replay.read(ring.reached, line, position, rows.lane)


def episode_start(ring: Ring, line: Timeline, rows: Rows) -> Array:
    """Position of the oldest stored row of each row's episode.

    The end of a row's episode never lies before that of an earlier row's: a search by halves finds the first
    row with the same end.
    """
    end = rows.position + rows.remaining

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds  # the start is in low..high
        middle = (low + high) // 2
        same = middle + replay.remaining(ring, line, middle, rows.lane) == end
        return jnp.where(same, low, middle + 1), jnp.where(same, middle, high)

    steps = math.ceil(math.log2(max(ring.slots * ring.segment_length, 2)))
    bounds = (jnp.zeros_like(rows.position), rows.position)
    return jax.lax.fori_loop(0, steps, halve, bounds)[1]


def final(ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float) -> Array:
    """What the episode achieved at its end; a running one has none yet, and keeps the commanded goal."""
    ended = replay.read(ring.ahead, line, rows.last, rows.lane) == 0
    reached = replay.read(ring.reached, line, rows.last, rows.lane)
    return jnp.where(ended[..., None], reached, commanded(ring, line, rows, key, gamma))


def commanded(ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float) -> Array:
    """The goal the policy was given."""
    del key, gamma
    return replay.read(ring.goal, line, rows.position, rows.lane)


GOAL_SAMPLERS: dict[str, GoalSampler] = {
    "future": future,
    "uniform_future": uniform_future,
    "episode": episode,
    "final": final,
    "commanded": commanded,
}


def goals(
    name: str,
    share: float,
    ring: Ring,
    line: Timeline,
    rows: Rows,
    key: Key,
    gamma: float,
    others: float = 0.0,
) -> Array:
    """Goals [B, goal_dim] by the sampler called `name`, each row with probability `share`; else commanded.

    With probability `others` a row takes the goal of the row before it, which is mostly another episode's.
    """
    if is_just(others, 0):
        return _own_goals(name, share, ring, line, rows, key, gamma)
    k_own, k_swap = jax.random.split(key)
    own = _own_goals(name, share, ring, line, rows, k_own, gamma)
    swapped = jax.random.bernoulli(k_swap, others, rows.position.shape)
    return jnp.where(swapped[..., None], jnp.roll(own, 1, axis=0), own)


def _own_goals(
    name: str, share: float, ring: Ring, line: Timeline, rows: Rows, key: Key, gamma: float
) -> Array:
    sampler = GOAL_SAMPLERS[name]
    if is_just(share, 1):
        return sampler(ring, line, rows, key, gamma)
    k_sampler, k_share = jax.random.split(key)
    chosen = jax.random.bernoulli(k_share, share, rows.position.shape)
    sampled = sampler(ring, line, rows, k_sampler, gamma)
    return jnp.where(chosen[..., None], sampled, commanded(ring, line, rows, k_sampler, gamma))


def batch(
    ring: Ring, line: Timeline, rows: Rows, goal: Array, reward: RewardFn, shaping: ShapingFn | None = None
) -> Batch:
    """The rows [B] with `goal` [B, goal_dim] in place of theirs; `reward(achieved, goal)` is asked anew.

    Where the environment pays `shaping(state, reached, goal)` and more that does not depend on the goal, the
    stored reward loses the shaping of the old goal and gains that of the new one.
    """

    def at(field: Array, position: Array) -> Array:
        return replay.read(field, line, position, rows.lane)

    follows = rows.remaining > 1
    discount, reached = at(ring.discount, rows.position), at(ring.reached, rows.position)
    state = at(ring.state, rows.position)
    terminates = at(ring.discount, rows.last) == 0
    if shaping is None:
        paid = reward(reached, goal)
    else:
        old = shaping(state, reached, at(ring.goal, rows.position))
        paid = at(ring.reward, rows.position) - old + shaping(state, reached, goal)
    return Batch(
        obs=Obs(state=state, goal=goal),
        action=at(ring.action, rows.position),
        next_obs=Obs(state=at(ring.state, rows.position + follows.astype(jnp.int32)), goal=goal),
        reward=paid.astype(jnp.float32),
        discount=discount,
        weight=(follows | (discount == 0)).astype(jnp.float32),
        left=jnp.where(terminates, rows.remaining.astype(jnp.float32), jnp.inf),
    )
