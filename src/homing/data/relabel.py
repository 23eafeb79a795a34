"""Hindsight relabelling: the laws by which goals are drawn for stored transitions."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from homing.data import replay
from homing.data.replay import EpisodeIndex, ReplayBuffer
from homing.types import Array, Key, TransitionIndex

# (buffer, episodes, transitions [...], key, gamma) -> goals [..., goal_dim]
GoalSampler = Callable[[ReplayBuffer, EpisodeIndex, TransitionIndex, Key, float], Array]


def geometric_offset(key: Key, remaining: Array, gamma: float) -> Array:
    """An offset k in 1..n for each n in `remaining` [...], P(k) ∝ γ^k: k = ⌈log(1 − u(1 − γ^n)) / log γ⌉."""
    uniform = jax.random.uniform(key, remaining.shape, jnp.float32)
    # In a population γ is traced.
    log_gamma = math.log(gamma) if isinstance(gamma, float) else jnp.log(gamma)
    mass = -jnp.expm1(remaining.astype(jnp.float32) * log_gamma)
    offset = jnp.ceil(jnp.log1p(-uniform * mass) / log_gamma)
    # Rounding can reach 0 or, where γ^n vanishes, infinity: the clip comes before the cast.
    return jnp.clip(offset, 1, remaining.astype(jnp.float32)).astype(jnp.int32)


def future(
    buffer: ReplayBuffer, episodes: EpisodeIndex, index: TransitionIndex, key: Key, gamma: float
) -> Array:
    """The goal achieved k steps later in the episode, P(k) ∝ γ^k; k = 1 is the result of this action."""
    offset = geometric_offset(key, index.remaining, gamma)
    return replay.read(buffer.achieved_goal, episodes, index.position + offset - 1, index.env)


def uniform_future(
    buffer: ReplayBuffer, episodes: EpisodeIndex, index: TransitionIndex, key: Key, gamma: float
) -> Array:
    """The goal achieved at a uniformly drawn later step of the episode, this one included."""
    del gamma
    offset = jax.random.randint(key, index.remaining.shape, 0, index.remaining, jnp.int32)
    return replay.read(buffer.achieved_goal, episodes, index.position + offset, index.env)


def episode(
    buffer: ReplayBuffer, episodes: EpisodeIndex, index: TransitionIndex, key: Key, gamma: float
) -> Array:
    """The goal achieved at a uniformly drawn step of the episode, earlier ones included."""
    del gamma
    first = episode_start(buffer, episodes, index)
    after = index.position + index.remaining
    position = jax.random.randint(key, index.position.shape, first, after, jnp.int32)
    return replay.read(buffer.achieved_goal, episodes, position, index.env)


def episode_start(buffer: ReplayBuffer, episodes: EpisodeIndex, index: TransitionIndex) -> Array:
    """Position of the oldest stored transition of each transition's episode.

    Episode ends never decrease with the position: a binary search finds the first position with the same end.
    """
    end = index.position + index.remaining

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds  # the start is in low..high
        middle = (low + high) // 2
        same = middle + replay.remaining(buffer, episodes, middle, index.env) == end
        return jnp.where(same, low, middle + 1), jnp.where(same, middle, high)

    steps = math.ceil(math.log2(max(buffer.slots * buffer.segment_length, 2)))
    bounds = (jnp.zeros_like(index.position), index.position)
    return jax.lax.fori_loop(0, steps, halve, bounds)[1]


def final(
    buffer: ReplayBuffer, episodes: EpisodeIndex, index: TransitionIndex, key: Key, gamma: float
) -> Array:
    """The goal achieved at the episode's end; while the episode runs, the commanded goal."""
    ended = replay.read(buffer.to_end, episodes, index.last, index.env) == 0
    achieved = replay.read(buffer.achieved_goal, episodes, index.last, index.env)
    return jnp.where(ended[..., None], achieved, commanded(buffer, episodes, index, key, gamma))


def random(
    buffer: ReplayBuffer, episodes: EpisodeIndex, index: TransitionIndex, key: Key, gamma: float
) -> Array:
    """The goal achieved at a uniformly drawn transition of the buffer, whatever its episode."""
    del gamma
    k_position, k_env = jax.random.split(key)
    position = jax.random.randint(k_position, index.position.shape, 0, episodes.filled, jnp.int32)
    env = jax.random.randint(k_env, index.position.shape, 0, buffer.num_envs, jnp.int32)
    return replay.read(buffer.achieved_goal, episodes, position, env)


def commanded(
    buffer: ReplayBuffer, episodes: EpisodeIndex, index: TransitionIndex, key: Key, gamma: float
) -> Array:
    """The goal that the policy was commanded to reach."""
    del key, gamma
    return replay.read(buffer.goal, episodes, index.position, index.env)


GOAL_SAMPLERS: dict[str, GoalSampler] = {
    "future": future,
    "uniform_future": uniform_future,
    "episode": episode,
    "final": final,
    "random": random,
    "commanded": commanded,
}
